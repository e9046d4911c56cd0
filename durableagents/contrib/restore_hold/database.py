"""Statements about the database's own position, for Django's connections and for asynchronous ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from django.db import OperationalError, connection

from durableagents.contrib.restore_hold.comparing import Database
from durableagents.contrib.restore_hold.heads import Head
from runs.fleet import members

GRANT = "GRANT EXECUTE ON FUNCTION pg_control_system() TO {role}"
# The timeline is read from the name of the WAL file, because the control file lags behind a promotion. A live worker's
# row counts only if its session lock is held: a restored database has the row, but not the lock. The table of schedules
# may be missing, so their act records show whether there were any.
_TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
_LSN = "pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
STATE = f"""
    SELECT (SELECT system_identifier::text FROM pg_control_system()),
           CASE WHEN NOT pg_is_in_recovery() THEN {_TIMELINE} END,
           CASE WHEN NOT pg_is_in_recovery() THEN {_LSN} END,
           m.line, coalesce(m.number, 0), m.host, coalesce(m.host_name, ''), coalesce(m.timeline, 0),
           NOT EXISTS (SELECT 1 FROM runs_run)
               AND NOT EXISTS (SELECT 1 FROM ledger_actrecord WHERE action = 'schedule'),
           EXISTS (
               SELECT 1 FROM restore_hold_voucher v JOIN pg_locks l ON l.locktype = 'advisory' AND l.objsubid = 1
                   AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND (l.classid::bigint << 32 | l.objid::bigint) = {members.LOCK_KEY.format(id="v.worker")}
               WHERE v.server_began = pg_postmaster_start_time()
                   AND CASE WHEN NOT pg_is_in_recovery() THEN v.timeline = {_TIMELINE} END),
           (SELECT max(p.accepted) FROM restore_hold_pastline p WHERE p.line = %s),
           coalesce((SELECT h.stage = 'lifted' FROM runs_halt h WHERE h.halt = %s ORDER BY h.n DESC LIMIT 1), false)
    FROM (SELECT 1) one LEFT JOIN restore_hold_mark m ON m.id = 1"""
# Sets the next mark. It has no effect if the line has ended or this is a different database.
SET_MARK = f"""
    UPDATE restore_hold_mark SET number = number + 1, host = %s, host_name = %s, at = clock_timestamp()
    WHERE id = 1 AND line = %s AND timeline = {_TIMELINE} RETURNING number, {_TIMELINE}, {_LSN}"""
READ_MARK = f"SELECT number, {_TIMELINE}, {_LSN} FROM restore_hold_mark WHERE id = 1 AND line = %s"
# Records that a worker vouches for the database. It has no effect if the worker has already done so on this server.
VOUCH = f"""
    INSERT INTO restore_hold_voucher AS v (worker, timeline, server_began)
    VALUES (%s, {_TIMELINE}, pg_postmaster_start_time())
    ON CONFLICT (worker) DO UPDATE SET timeline = excluded.timeline, server_began = excluded.server_began
    WHERE (v.timeline, v.server_began) <> (excluded.timeline, excluded.server_began)"""
FORGET = "DELETE FROM restore_hold_voucher v USING runs_process p WHERE p.id = v.worker AND p.ended_at IS NOT NULL"
IN_RECOVERY = "the database is a standby in recovery: it can't be written"


def parameters_for(head: object) -> list[Any]:
    """Return the parameters of STATE for a head, or for a host without one."""
    return [head.line, head.waits_for] if isinstance(head, Head) else [None, None]


def database_of(row: Sequence[Any]) -> Database:
    """Build the position from a row of STATE. Raises psycopg.OperationalError for a standby."""
    if row[1] is None:
        raise psycopg.OperationalError(IN_RECOVERY)
    return Database(*row)


def read_database(head: object) -> Database:
    """Read the database's position. Raises django.db.Error."""
    with connection.cursor() as cursor:
        cursor.execute(STATE, parameters_for(head))
        row = cursor.fetchone()
    try:
        return database_of(row)
    except psycopg.OperationalError as error:
        raise OperationalError(str(error)) from error
