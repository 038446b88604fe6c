module github.com/oxygenhub/leader/soak

go 1.26.0

replace github.com/oxygenhub/leader => ../

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/oxygenhub/leader v0.0.0-00010101000000-000000000000
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.13.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
