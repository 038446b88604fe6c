# Only Go and a POSIX shell are needed. CONTRIBUTING.md says what `make test` looks for besides.

.PHONY: check test test-versions lint allocs dist bench soak histories

# Everything that a change must pass.
check: lint allocs test

test:
	@sh .ci/test

# The root module and integration/ against PostgreSQL 13 to 18: a few, as in `make test-versions VERSIONS='13 18'`.
test-versions:
	@sh .ci/versions $(VERSIONS)

lint:
	@sh .ci/lint

# Fails when what runs per request, or in each round of the loop, allocates more than .ci/allocs.txt says.
allocs:
	@sh .ci/allocs

# The program `leader` for machines without Go, in dist/.
dist:
	@sh .ci/dist

bench:
	GOWORK=off go test -run '^$$' -bench . -benchmem ./...
	cd leadergrpc && GOWORK=off go test -run '^$$' -bench . -benchmem ./...
	cd bench && GOWORK=off go run . -out ../docs

# Before a release: fleets of real processes under random faults, for SOAK with each of SEEDS, with a report of each in
# soak-report/; and the state machine over and over. It goes on after a violation, to show them all.
SEEDS = 1 2 3
SOAK = 10m
soak:
	@status=0; for seed in $(SEEDS); do \
		(cd soak && GOWORK=off go run . -for $(SOAK) -arena all -seed $$seed -report ../soak-report/$$seed) || status=1; \
	done; exit $$status
	GOWORK=off go test -race -count=100 -timeout 120m -run '^(TestLoop|FuzzRun)' .

# 1,000 random histories of processes that are frozen, killed, replaced and cut off, on PostgreSQL.
histories:
	GOWORK=off LEADER_TEST_HISTORIES=1000 go test -v -count=1 -timeout 60m -run '^TestPostgresHistories$$' .
