#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Leads a name in turn with Go processes: leader.py 'dbname=app' NAMESPACE NAME; SIGTERM ends it.

docs/protocol.md says why. It needs psycopg2 and b3sum (Debian: python3-psycopg2, b3sum). Go must not have Terms on.
"""
import contextlib, os, random, select, signal, subprocess, sys, time
import psycopg2

TIMEOUT, LEASE, CHECK, RETRY = 10, 6, 2, float(os.environ.get("RETRY", 1))  # seconds
SETTINGS = {"search_path": "pg_catalog", "lock_timeout": 200, "statement_timeout": LEASE * 1000,
            "idle_session_timeout": TIMEOUT * 1000, "tcp_user_timeout": TIMEOUT * 1000,
            "tcp_keepalives_idle": 5, "tcp_keepalives_interval": 1, "tcp_keepalives_count": 5}
HELD = """SELECT pg_backend_pid() = %s AND NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
    AND EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' AND granted
    AND pid = pg_backend_pid() AND (classid::int8 << 32 | objid::int8) = %s)"""


def key(namespace, name):
    text = b"leader v1\0" + namespace.encode() + b"\0" + name.encode()
    raw = subprocess.run(["b3sum", "--raw", "--length", "8"], input=text, stdout=subprocess.PIPE, check=True).stdout
    return int.from_bytes(raw, "little", signed=True)


def clock():  # goes on while the machine sleeps, where there is such a clock
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def ask(conn, sql, *args):
    with conn.cursor() as cursor:
        cursor.execute(sql, args)
        return cursor.fetchone()[0]


def hear(conn, payload, seconds):  # until the lock may be free; raises when the server has ended the session
    end = clock() + seconds
    while select.select([conn], [], [], max(0, end - clock()))[0]:
        conn.poll()
        if any(payload in n.payload.split(",") for n in conn.notifies):
            break
    conn.notifies.clear()


def contend(conn, lock, channel, work):
    pid, payload, proved = conn.info.backend_pid, "%016x" % (lock % 2**64), float("-inf")
    if ask(conn, "SELECT pg_backend_pid()") != pid:
        sys.exit("there is a pooler in between: connect to the server itself")
    for name, value in SETTINGS.items():  # those that the server has
        ask(conn, "SELECT count(set_config(name, %s::text, false)) FROM pg_settings WHERE name = %s", value, name)
    conn.cursor().execute("LISTEN " + channel)
    while not ask(conn, "SELECT pg_try_advisory_lock(%s)", lock):
        hear(conn, payload, RETRY * random.uniform(0.8, 1.2))
    try:
        while True:
            sent = clock()
            if sent - proved >= CHECK:
                if not ask(conn, HELD, pid, lock):
                    raise psycopg2.OperationalError("the lock is gone, or the server is not a primary")
                proved = sent
            hear(conn, payload, 0)
            if clock() - proved >= LEASE:  # the answer came too late; nothing was done meanwhile
                raise psycopg2.OperationalError("the lease is over")
            work()  # a step, of less than TIMEOUT - LEASE
    finally:  # if the session has ended, this raises: so has the lock
        if ask(conn, "SELECT pg_advisory_unlock(%s)", lock):
            ask(conn, "SELECT pg_notify(%s, %s)::text", channel, payload)


def step():
    print("leading", time.time(), flush=True)
    time.sleep(0.05)


def main(dsn, namespace, name):
    lock, channel = key(namespace, name), "leader_%016x" % (key(namespace, "") % 2**64)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    while True:
        try:
            with contextlib.closing(psycopg2.connect(dsn, application_name="leader/py", connect_timeout=5,
                                                     tcp_user_timeout=TIMEOUT * 1000)) as conn:
                conn.autocommit = True
                contend(conn, lock, channel, step)
        except psycopg2.Error as err:
            print("trying on:", err, file=sys.stderr)
        time.sleep(random.uniform(0, RETRY))


if __name__ == "__main__":
    main(*sys.argv[1:])
