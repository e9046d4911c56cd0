"""A step's statement, straight over libpq: prepared once a connection, values in, one row out.

psycopg's cursors are made for any statement and any type, and cost a step more than the server takes for it. A step's statements
are few, their parameters are texts, numbers and bytes, and their answer is one row of fixed types: so values are encoded here and
the row stays binary, while sending, waiting, cancelling and telling what went wrong stay psycopg's.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb, JsonbDumper
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from runs.engine.journal import Reply

Connection = psycopg.AsyncConnection[TupleRow]
Pool = AsyncConnectionPool[Connection]

# A step has a statement for each number of events and facts, with and without wait and checkpoint: some dozens in all.
MOST_PREPARED = 100
_TEXT, _BINARY = int(Format.TEXT), int(Format.BINARY)
_REPLY = struct.Struct("!qq????")
_MILLENNIUM = datetime(2000, 1, 1, tzinfo=UTC)
_ASK_AGAIN_SECONDS = 0.25
_asking: WeakSet[Pool] = WeakSet()
_turns: WeakKeyDictionary[Pool, asyncio.Semaphore] = WeakKeyDictionary()
_names = itertools.count()
_prepared: WeakKeyDictionary[Connection, dict[str, bytes]] = WeakKeyDictionary()


def turns(pool: Pool) -> asyncio.Semaphore:
    """As many turns as the pool has connections: waiting for a turn costs a tenth of waiting in the pool's own queue."""
    return _turns.setdefault(pool, asyncio.Semaphore(pool.max_size))


async def ask_again(pool: Pool) -> None:
    """For a pool as its `reconnect_failed`: try on. psycopg gives up after `reconnect_timeout` and tries again only when somebody new asks
    for a connection, while whoever stands in the queue already waits their whole timeout out, the database long back."""
    if pool in _asking:
        return
    _asking.add(pool)
    try:
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
        with suppress(PoolTimeout, PoolClosed):
            await pool.putconn(await pool.getconn(timeout=0.01))
    finally:
        _asking.discard(pool)


async def one_row(link: Connection, statement: str, values: Sequence[Any]) -> list[bytes | None]:
    """Run a statement that answers one row; its columns as PostgreSQL's binary format has them. Raises psycopg.Error.

    The caller has the connection to itself. A statement outside a transaction is one of its own, whatever psycopg thinks of
    `autocommit`.
    """
    sent, formats = _encoded(values)
    names = _prepared.get(link)
    if names is None:
        names = _prepared[link] = {}
    pgconn, name = link.pgconn, names.get(statement)
    if name is None and len(names) < MOST_PREPARED:
        # A name is used up even if the preparing is cut off: the server may know it by then.
        name = b"step_%d" % next(_names)
        pgconn.send_prepare(name, numbered(statement))
        await _result(link)
        names[statement] = name
    if name is None:
        pgconn.send_query_params(numbered(statement), sent, param_formats=formats, result_format=_BINARY)
    else:
        pgconn.send_query_prepared(name, sent, param_formats=formats, result_format=_BINARY)
    result = await _result(link)
    return [result.get_value(0, column) for column in range(result.nfields)]


async def _result(link: Connection) -> Any:
    (result,) = await link.wait(execute(link.pgconn))
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(result)
    return result


def reply_of(row: Sequence[bytes | None]) -> Reply:
    """A `runs_reply` as the binary format has it: a bigint, a timestamp in microseconds since 2000, four booleans."""
    seq, microseconds, *flags = _REPLY.unpack(b"".join(column or b"" for column in row))
    return Reply(seq, _MILLENNIUM + timedelta(microseconds=microseconds), *flags)


@lru_cache(maxsize=512)
def numbered(statement: str) -> bytes:
    """`%s` and `%b` as `$1, $2, …`. A step's statements have no other per cent sign."""
    number = iter(range(1, 65536))
    return re.sub("%[sb]", lambda _: f"${next(number)}", statement).encode()


def _encoded(values: Sequence[Any]) -> tuple[list[bytes | None], list[int]]:
    sent: list[bytes | None] = []
    formats = [_TEXT] * len(values)
    for place, value in enumerate(values):
        kind = type(value)
        if kind is bytes:
            formats[place] = _BINARY
        elif kind is int:
            value = b"%d" % value
        elif value is not None:
            value = _text(value if kind is str else _other(value))
        sent.append(value)
    return sent, formats


def _text(value: str) -> bytes:
    """libpq would take a text for ended where it has a NUL."""
    if "\x00" in value:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return value.encode()


def _other(value: Any) -> str:
    match value:
        case str():
            return str.__str__(value)
        case UUID() | int():
            return str(value)
        case datetime():
            return value.isoformat()
        case Jsonb():
            return bytes(JsonbDumper(Jsonb).dump(value) or b"null").decode()
        case list():
            return "{" + ",".join(_element(each) for each in value) + "}"
        case _:
            raise psycopg.ProgrammingError(f"a step has no parameter of type {type(value).__name__}")


def _element(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f'"\\\\x{value.hex()}"'
        case _:
            return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
