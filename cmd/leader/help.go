// SPDX-License-Identifier: MIT

package main

const overview = `leader runs things in exactly one process of many, with locks on a database that they share.

  leader COMMAND [FLAGS] ...

%s
The database is that of --db, else of the environment variable DATABASE_URL, else of the PG* variables of psql. "leader help
COMMAND" tells more, and docs/cli.md of github.com/oxygenhub/leader all of it.
`

// databaseHelp is part of the help of each subcommand that asks a database.
const databaseHelp = `  --db URL|FILE   postgres://user@host/database, "host=... dbname=...", or the path of a SQLite file. Default: the environment
                  variable DATABASE_URL, else PGHOST, PGDATABASE, PGSERVICE and so on, as for psql. Passwords belong into
                  the environment, PGPASSFILE or a service file: others can see those of a command line.
`

const runHelp = `Run a command while this process leads.

  leader run [--db URL|FILE] --name NAME [FLAGS] -- COMMAND [ARGUMENT...]

Any number of machines may do so with the same NAME: one of them runs the command, the others wait until it has ended, or its
process or machine has died. Put it before a program that must not run twice:

  leader run --name billing -- ./billing
  leader run --try --name nightly -- ./nightly-report   # in the crontab of each machine

` + databaseHelp + `  --name NAME     what is led: any text that all agree on
  --namespace NS  names of different namespaces are different locks. Default on PostgreSQL: the current schema
  --try           do not wait: if somebody else leads, end at once with status 75
  --wait TIME     wait for so long at most, as 30s or 5m, and end with status 75 then. Default: without end
  --restart       after a loss of the lock contend again, instead of ending with status 76
  --kill-after TIME
                  how long the command and its process group may take to end after a SIGTERM before they are killed.
                  Default 5s. All machines should have the same
  --term-env VAR  give the command the number of its leadership in the environment variable VAR, as LEADER_TERM: a fencing
                  token, which rises each time. It keeps the table leader_terms; all machines should have it, or none
  --schema NAME   where leader_terms is, if the namespace is not the name of a schema. With --term-env
  --node NAME     who this process is, for "leader status". Default: host name, process id and a random number
  --verbose       tell what happens, on standard error

When the lock is lost, as by a restart of the database, the process group of the command gets a SIGTERM, and SIGKILL after
--kill-after. When this process gets SIGINT, SIGTERM, SIGHUP or SIGQUIT it passes it on to the group, likewise, and ends after it.
The lock is given back only when the group is gone. A command does not read from the terminal.

The exit status is that of the command, 128 and the number of the signal that ended it, or

  64   the command line is wrong            76   the lock was lost, and the command was stopped
  69   the database could not be asked      78   the database, or a pooler before it, cannot lock
  75   somebody else leads (--try, --wait)  126, 127   the command cannot be executed, or was not found
`

const keyHelp = `Print the lock that a name means.

  leader key [--json] NAMESPACE NAME

It is for programs in other languages that take part, and for looking into pg_locks: the number for pg_try_advisory_lock, the
same in hexadecimal, which names the lock file of SQLite, and its halves, the columns classid and objid of pg_locks.
NAMESPACE is the schema, unless all set another one; on SQLite it is main.
`
