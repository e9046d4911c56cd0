"""The floor: the cost of one durable row of the same size through plain psycopg.

The *statement* updates a head and inserts an event into tables with our columns and indexes, without locks, checks or
hashes. The *function* is a minimal fenced, hash-chained journal: lock the head, check the lease, link, insert, update.
Both run as an application would: prepared, by `await connection.execute(...)`, on a pool as large as a worker's.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal
from uuid import uuid4

import psycopg

from ledger import events as e
from ledger.chain import body_hash
from ledger.codec import pack
from tests.system.bench.agents import TEXT

Kind = Literal["function", "statement"]

_TABLES = """
CREATE TABLE floor_head (LIKE ledger_head INCLUDING ALL);
CREATE TABLE floor_event (LIKE ledger_event INCLUDING ALL);
CREATE FUNCTION floor_append(
    p_run uuid, p_epoch bigint, p_lease uuid, p_kind text, p_slot text, p_attempt int, p_fact text, p_clear bytea,
    p_sealed bytea, p_body bytea
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    h floor_head;
    t timestamptz := clock_timestamp();
    link bytea;
BEGIN
    SELECT * INTO h FROM floor_head WHERE run_id = p_run FOR UPDATE;
    IF NOT FOUND OR h.epoch <> p_epoch OR h.lease IS DISTINCT FROM p_lease THEN
        RAISE EXCEPTION 'stale';
    END IF;
    link := sha256(h.chain || int8send(h.seq + 1) || int8send(h.epoch) || int8send((extract(epoch FROM t) *
    1000000)::bigint) || p_body);
    INSERT INTO floor_event (run_id, seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, hash)
    VALUES (p_run, h.seq + 1, h.epoch, t, p_kind, p_slot, p_attempt, p_fact, p_clear, p_sealed, h.chain, link);
    UPDATE floor_head SET seq = h.seq + 1, chain = link, steps = steps + 1 WHERE run_id = p_run;
    RETURN h.seq + 1;
END $$;
"""
_HEAD = """
INSERT INTO floor_head (run_id, epoch, lease, seq, claimed_seq, deaths, chain, is_pause_requested, is_cancel_requested,
is_on_hold, steps,
    tokens_in, tokens_out, usd_micro, tool_calls, model_calls)
VALUES (%s, 1, %s, 0, 0, 0, %b, false, false, false, 0, 0, 0, 0, 0, 0)
"""
_STATEMENT = """
WITH head AS (UPDATE floor_head SET seq = seq + 1, chain = %b WHERE run_id = %s RETURNING seq)
INSERT INTO floor_event (run_id, seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, hash)
SELECT %s, seq, 1, clock_timestamp(), 'ToolRead', %s, 0, 'result', %b, %b, %b, %b FROM head
"""
_FUNCTION = "SELECT floor_append(%s, 1, %s, 'ToolRead', %s, 0, 'result', %b, %b, %b)"


def make() -> None:
    """Create tables with our columns and indexes, without triggers."""
    from django.conf import settings

    from durableagents import databases, env

    os.environ["DURABLEAGENTS_DB_ROLE"] = "owner"
    owner = databases.django_databases(env.load())["default"]
    del os.environ["DURABLEAGENTS_DB_ROLE"]
    role = settings.DATABASES["default"]["USER"]
    with psycopg.connect(
        dbname=owner["NAME"],
        user=owner["USER"],
        password=owner["PASSWORD"],
        host=owner["HOST"],
        port=owner["PORT"] or None,
        autocommit=True,
    ) as link:
        link.execute(_TABLES)
        link.execute(f"GRANT SELECT, INSERT, UPDATE ON floor_head, floor_event TO {role}")


async def drive(pool: Any, kind: Kind, runs: int, steps: int) -> None:
    event = e.ToolRead(
        slot="0.1/1", tool="look", requested_hash="0" * 64, payload={"arguments": {"n": 1}, "result": {"text": TEXT}}
    )
    clear, packed = e.encode_clear(event), pack(event.payload, None)
    body = body_hash(clear, packed)

    async def one() -> None:
        run_id, lease = uuid4(), uuid4()
        async with pool.connection() as link:
            await link.execute(_HEAD, [run_id, lease, body])
        for i in range(steps):
            async with pool.connection() as link:
                if kind == "function":
                    await link.execute(_FUNCTION, [run_id, lease, f"0.1/{i}", clear, packed, body], prepare=True)
                else:
                    await link.execute(
                        _STATEMENT, [body, run_id, run_id, f"0.1/{i}", clear, packed, body, body], prepare=True
                    )

    await asyncio.gather(*(one() for _ in range(runs)))
