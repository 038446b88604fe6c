#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Entry point of the images that image.sh builds. Of what the official image's does it has what the tests need:
# POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB, PGDATA, one initdb, and arguments passed on to the server. The server
# starts once, so it says that it is ready once, where the official image says it twice: wait for a connection.
set -eu

case "${1:-}" in
'' | -*) set -- postgres "$@" ;;
esac
[ "$1" = postgres ] || exec "$@"

PGDATA=${PGDATA:-/var/lib/postgresql/data}
export PGDATA

if [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA" /var/run/postgresql
	chown postgres:postgres "$PGDATA" /var/run/postgresql
	chmod 700 "$PGDATA"
	chmod 3777 /var/run/postgresql
	exec setpriv --reuid=postgres --regid=postgres --clear-groups "$0" "$@"
fi

init() {
	user=${POSTGRES_USER:-postgres}
	db=${POSTGRES_DB:-$user}
	if [ -z "${POSTGRES_PASSWORD:-}" ]; then
		echo 'entrypoint: set POSTGRES_PASSWORD' >&2
		exit 1
	fi
	umask 077
	printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
	# The data is thrown away with the container: nothing to sync.
	initdb --no-sync --encoding=UTF8 --locale=C --username="$user" --pwfile=/tmp/password \
		--auth-local=trust --auth-host=scram-sha-256
	rm /tmp/password
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	if [ "$db" != postgres ]; then
		quoted=$(printf '%s' "$db" | sed 's/"/""/g')
		printf 'CREATE DATABASE "%s"\n' "$quoted" | postgres --single -j -D "$PGDATA" postgres >/dev/null
	fi
}

[ -s "$PGDATA/PG_VERSION" ] || init

# The tests' own arguments come last, so they win.
shift
exec postgres -c listen_addresses='*' "$@"
