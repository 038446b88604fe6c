// SPDX-License-Identifier: MIT

package main

const overview = `leader runs things in exactly one process of many, with locks on a database that
they share.

  leader COMMAND [FLAGS] ...

%s
The database is that of --db, else of the environment variable DATABASE_URL,
else of the PG* variables of psql. "leader help COMMAND" tells more, and
docs/cli.md of github.com/oxygenhub/leader all of it.
`

// databaseHelp is part of the help of each subcommand that asks a database.
const databaseHelp = `  --db URL|FILE   postgres://user@host/database, "host=... dbname=...", or the
                  path of a SQLite file. Default: the environment variable
                  DATABASE_URL, else PGHOST, PGDATABASE, PGSERVICE and so on,
                  as for psql. Passwords belong into the environment,
                  PGPASSFILE or a service file: others can see those of a
                  command line
`

const runHelp = `Run a command while this process leads.

  leader run [--db URL|FILE] --name NAME [FLAGS] -- COMMAND [ARGUMENT...]

Any number of machines may do so with the same NAME: one of them runs the
command, the others wait until it has ended, or its process or machine has died.
Put it before a program that must not run twice:

  leader run --name billing -- ./billing
  leader run --try --name nightly -- ./report   # in the crontab of each machine

` + databaseHelp + `  --name NAME     what is led: any text that all agree on
  --namespace NS  names of different namespaces are different locks: all that
                  are to exclude each other need the same. Default on
                  PostgreSQL: the current schema, which can differ by role
  --try           do not wait: if somebody else leads, end with status 75
  --wait TIME     wait for so long at most, as 30s or 5m, and end with status 75
                  then. Default: without end
  --restart       after a loss of the lock contend again, instead of ending with
                  status 76
  --kill-after TIME
                  how long the command and its process group may take to end
                  after a SIGTERM before they are killed. Default 5s. All
                  machines should have the same
  --term-env VAR  give the command the number of its leadership, a fencing
                  token that rises each time, in the environment variable VAR.
                  It keeps the table leader_terms; all machines should have it,
                  or none
  --schema NAME   where leader_terms is, if the namespace is not the name of a
                  schema. With --term-env
  --node NAME     who this process is, for "leader status". Default: host name,
                  process id and a random number
  --verbose       tell what happens, on standard error

When the lock is lost, as by a restart of the database, the process group of the
command gets a SIGTERM, and SIGKILL after --kill-after. When this process gets
SIGINT, SIGTERM, SIGHUP or SIGQUIT it passes it on to the group, likewise, and
ends after it. The lock is given back only when the group is gone. The command
does not read from the terminal.

The exit status is that of the command, 128 and the number of the signal that
ended it, or

  64        the command line is wrong
  69        the database could not be asked (--try, --wait; else it is asked
            until it answers)
  75        somebody else leads (--try, --wait)
  76        the lock was lost, and the command was stopped
  78        the database, or a pooler before it, cannot lock
  126, 127  the command cannot be executed, or was not found
`

const keyHelp = `Print the lock that a name means.

  leader key [--json] NAMESPACE NAME

It is for programs in other languages that take part, and for looking into
pg_locks: the number for pg_try_advisory_lock, the same in hexadecimal, which
names the lock file of SQLite, and its halves, the columns classid and objid of
pg_locks; and the channel on which who lets go of a lock of this namespace tells
the others. NAMESPACE is the schema, unless all set another one; on SQLite it is
main. docs/protocol.md tells what to do with them.
`

const statusHelp = `Show who leads what.

  leader status [--db URL|FILE] [FLAGS] [NAME...]

` + databaseHelp + `  --namespace NS  see "leader help run". Default on PostgreSQL: the current
                  schema; on SQLite: main
  --schema NAME   where leader_terms is, if the namespace is not the name of a
                  schema
  --json          for programs: one object, with the times in RFC 3339
  --watch         go on, and show what changes, until Ctrl-C. With --json a line
                  per change: an object, or {"error": "..."} while the database
                  does not answer

The database keeps locks as numbers. A name is shown if it was given, or is in
the table leader_terms, which is there if the processes use terms
(Options.Terms, --term-env): then all names are shown with the number and the
address of their leader. Otherwise it is "key" and the lock in hexadecimal, as
"leader key" prints it. Sessions that lead nothing stand by, or are about to.
A role without pg_read_all_stats sees no addresses and times of others.
`

const checkHelp = `Find out whether locks work on this database.

  leader check [--db URL|FILE] [--namespace NS] [--schema NAME] [--json]

` + databaseHelp + `  --namespace NS  that the processes use, if not the current schema
  --schema NAME   where leader_terms is to be, if the namespace is not the name
                  of a schema
  --json          for programs

It opens a session as the library does, with its test of locks and of poolers,
and looks at the version, the role and its rights, the room for locks and
connections and how fast the server answers. It changes nothing. Each line is
ok, warn or fail, with what to do. The exit status is 1 if one of them is fail.
Ask with the connection string that the service has.
`

const terminateHelp = `End the session of a holder that does not answer.

  leader terminate [--db URL|FILE] [--namespace NS] --name NAME [--yes]

` + databaseHelp + `  --name NAME     whose lock is to be free
  --namespace NS  see "leader help run"
  --yes           do not ask

It ends the one session of the server that holds the lock of NAME, known by its
process and its start, and with it all that this process leads. The holder is
told and stops, if it lives; but another process may start before it has
stopped. So ask it first: "leader resign". A process that lives contends again:
stop it to keep it out. The role must be that of the session, or have
pg_read_all_stats and pg_signal_backend. The exit status is 0 when the session
has ended, and 1 if nobody leads NAME.

A lock on SQLite is the kernel's and ends with its process: the command tells
which.
`

const resignHelp = `Ask the holder of a name to hand it over.

  leader resign [--db URL|FILE] [--namespace NS] --name NAME [--wait TIME]

` + databaseHelp + `  --name NAME     what is to be handed over
  --namespace NS  see "leader help run"
  --wait TIME     how long to wait for it. Default 30s

The task of the holder is told to stop. When it has, the lock is given back, and
the holder stands by for some seconds, so that another process takes over: for a
machine that is to be emptied, or a leader that misbehaves. If there is no
other, it leads again. Nothing overlaps. A holder that was made with
Options.NoHandover, or by an older version of the library, does not hear it. The
exit status is 0 when the holder has let go, 1 if it has not in time or if nobody
leads NAME.

On SQLite nothing can be told to another process: stop the holder, which the
command names.
`

const completionHelp = `Print a script that completes the commands and flags of this program in a shell.

  leader completion bash|zsh|fish

bash, in .bashrc:               source <(leader completion bash)
zsh, in .zshrc after compinit:  source <(leader completion zsh)
fish:  leader completion fish >~/.config/fish/completions/leader.fish
`

const versionHelp = `Print the version of this program.

  leader version
`
