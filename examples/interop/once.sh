#!/bin/sh
# SPDX-License-Identifier: MIT
#
# once.sh DSN NAMESPACE NAME COMMAND: run COMMAND if nobody leads NAME now, in turn with Go processes that do. For a cron
# job on several machines. docs/protocol.md says why. It needs psql and b3sum. Go must not have Terms on.
#
# psql cannot look at the lock while COMMAND runs, so COMMAND is ended after LIMIT seconds, before the server would end a
# session that is silent. If somebody ends the session earlier, another may start beside COMMAND.
set -eu
dsn=$1 namespace=$2 name=$3
export COMMAND="$4" LIMIT="${LIMIT:-50}"

# key NAME: the key in hexadecimal, as payloads have it. The hash begins with its lowest byte.
key() {
	printf 'leader v1\0%s\0%s' "$namespace" "$1" | b3sum --no-names --length 8 |
		sed -E 's/(..)(..)(..)(..)(..)(..)(..)(..)/\8\7\6\5\4\3\2\1/'
}

PGAPPNAME=leader/psql psql -X -q -v ON_ERROR_STOP=1 -v lock="$(key "$name")" -v channel="leader_$(key '')" \
	-v silence="$(((LIMIT + 10) * 1000))" -v probes="$((LIMIT + 10))" "$dsn" <<'END'
SELECT count(set_config(s.name, v.value, false)) AS made FROM pg_settings AS s JOIN (VALUES
	('idle_session_timeout', :'silence'), ('tcp_user_timeout', :'silence'), ('tcp_keepalives_idle', :'probes'),
	('tcp_keepalives_interval', '1'), ('tcp_keepalives_count', '3')) AS v(name, value) USING (name) \gset
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS primary, pg_backend_pid() AS pid \gset
\if :primary
\else
	\warn this is no primary that takes writes
	SELECT 1 / 0;
\endif
SELECT pg_try_advisory_lock(('x' || :'lock')::bit(64)::bigint) AS got \gset
\if :got
	\! timeout --kill-after=5 "$LIMIT" sh -c "$COMMAND" </dev/null || echo "once.sh: $COMMAND: exit status $?" >&2
	SELECT pg_backend_pid() = :pid AND pg_advisory_unlock(('x' || :'lock')::bit(64)::bigint) AS given \gset
	SELECT pg_notify(:'channel', :'lock') \gset
	\if :given
	\else
		\warn the lock was lost while the command ran
	\endif
\else
	\echo somebody else leads
\endif
END
