"""Executes a step's statement directly with libpq.
A statement is prepared once per connection, takes values and returns one row. psycopg's general cursors cost more than
the server needs for a step. Waiting, cancelling and errors still go through psycopg."""

from __future__ import annotations

import asyncio
import itertools
import re
import struct
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb, JsonbDumper
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from runs.engine.journal import Reply

Connection = psycopg.AsyncConnection[TupleRow]
Pool = AsyncConnectionPool[Connection]
Sent = tuple[str, Sequence[bytes | None], Sequence[int]]  # a statement, its encoded values, and their formats

# A step has several dozen statements: by number of events and facts, wait, checkpoint, alone or batched.
MAX_PREPARED = 200
_TEXT, _BINARY = int(Format.TEXT), int(Format.BINARY)
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
# A `runs_reply` in binary format: after the number of columns come each column's type, length and value.
_REPLY = struct.Struct("!4x 8xq 8xq 8x? 8x? 8x? 8x?")
_MILLENNIUM = datetime(2000, 1, 1, tzinfo=UTC)
_ASK_AGAIN_SECONDS = 0.25
_asking: WeakSet[Pool] = WeakSet()
_turns: WeakKeyDictionary[Pool, asyncio.Semaphore] = WeakKeyDictionary()
_names = itertools.count()
_prepared: WeakKeyDictionary[Connection, dict[str, bytes]] = WeakKeyDictionary()


def turns(pool: Pool) -> asyncio.Semaphore:
    """Return a semaphore of the pool's size.
    Waiting for it costs a tenth of what waiting in the pool's own queue costs."""
    return _turns.setdefault(pool, asyncio.Semaphore(pool.max_size))


async def ask_again(pool: Pool) -> None:
    """Keep a pool connecting.
    This is the pool's `reconnect_failed` callback: psycopg stops trying after `reconnect_timeout` until a new request
    comes, while queued requests wait for their whole timeout."""
    if pool in _asking:
        return
    _asking.add(pool)
    try:
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
        with suppress(PoolTimeout, PoolClosed):
            await pool.putconn(await pool.getconn(timeout=0.01))
    finally:
        _asking.discard(pool)


def as_sent(statement: str, values: Sequence[Any]) -> Sent:
    """Return a statement with its values encoded for libpq.
    Raises psycopg.Error for values that PostgreSQL can't store."""
    return (statement, *encoded(values))


async def one_row(link: Connection, step: Sent) -> list[bytes | None]:
    """Run a statement on an exclusive connection, and return its only row in binary format.
    Raises psycopg.Error."""
    statement, sent, formats = step
    names = _names_on(link)
    pgconn, name = link.pgconn, names.get(statement)
    if name is None and len(names) < MAX_PREPARED:
        # A name is never reused, even if preparing is interrupted, because the server may already know it.
        name = b"step_%d" % next(_names)
        pgconn.send_prepare(name, numbered(statement))
        await _result(link)
        names[statement] = name
    _send(pgconn, name, statement, sent, formats)
    return _row(await _result(link))


@asynccontextmanager
async def transaction(link: Connection) -> AsyncIterator[None]:
    """Run statements in one transaction.
    After a rollback, prepared names are forgotten, because psycopg deallocates them."""
    try:
        async with link.transaction():
            yield
    except BaseException:
        _prepared.pop(link, None)
        raise


class Undone(Exception):
    """The server refused one of several statements, or their commit.
    Nothing was changed, and the connection is intact."""

    def __init__(self, refusal: psycopg.Error) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


async def rows_in_one_commit(link: Connection, statements: Sequence[Sent]) -> list[list[bytes | None] | None]:
    """Run statements in one round trip and transaction (all before one Sync).
    Returns the only row of each, or None. Raises Undone, and psycopg.Error, after which it is unknown what was
    committed."""
    names, fresh, pgconn = _names_on(link), dict[str, bytes](), link.pgconn
    answers: list[str | None] = []  # for each answer: the statement that it prepared, or None if it executed one
    pgconn.enter_pipeline_mode()
    try:
        for statement, sent, formats in statements:
            name = names.get(statement) or fresh.get(statement)
            if name is None and len(names) + len(fresh) < MAX_PREPARED:
                name = fresh[statement] = b"step_%d" % next(_names)
                pgconn.send_prepare(name, numbered(statement))
                answers.append(statement)
            _send(pgconn, name, statement, sent, formats)
            answers.append(None)
        pgconn.pipeline_sync()
        results = await link.wait(_until_sync(pgconn))
    finally:
        if pgconn.status == ConnStatus.OK:
            _leave_pipeline(pgconn)
    # Statements before the first refusal are prepared, regardless of what happened to the transaction.
    done = list(itertools.takewhile(lambda pair: pair[1].status in _DONE, zip(answers, results, strict=False)))
    names.update({statement: fresh[statement] for statement, _ in done if statement is not None})
    refused = [result for result in results if result.status == ExecStatus.FATAL_ERROR]
    if refused:
        raise Undone(error_from_result(refused[0]))
    return [_row(result) if result.ntuples else None for statement, result in done if statement is None]


def _until_sync(pgconn: Any) -> Generator[Any, Any, list[Any]]:
    """Return all results up to that of the Sync, which reports the commit.
    Raises psycopg.Error if the connection is lost."""
    yield from send(pgconn)
    results: list[Any] = []
    while True:
        fetched = yield from fetch_many(pgconn)
        if fetched and fetched[0].status == ExecStatus.PIPELINE_SYNC:
            return results
        results += fetched
        if pgconn.status != ConnStatus.OK:
            raise error_from_result(fetched[-1]) if fetched else psycopg.OperationalError("the connection was lost")


def _leave_pipeline(pgconn: Any) -> None:
    """Leave pipeline mode. A connection with pending answers is closed, because it can't be reused."""
    try:
        pgconn.exit_pipeline_mode()
    except psycopg.Error:
        pgconn.finish()


def _names_on(link: Connection) -> dict[str, bytes]:
    names = _prepared.get(link)
    if names is None:
        names = _prepared[link] = {}
    return names


def _send(
    pgconn: Any, name: bytes | None, statement: str, sent: Sequence[bytes | None], formats: Sequence[int]
) -> None:
    if name is None:
        pgconn.send_query_params(numbered(statement), sent, param_formats=formats, result_format=_BINARY)
    else:
        pgconn.send_query_prepared(name, sent, param_formats=formats, result_format=_BINARY)


def _row(result: Any) -> list[bytes | None]:
    return [result.get_value(0, column) for column in range(result.nfields)]


async def _result(link: Connection) -> Any:
    result = (await link.wait(execute(link.pgconn)))[-1]  # A deferred constraint's refusal comes last, at the commit.
    if result.status not in _DONE:
        raise error_from_result(result)
    return result


def reply_of(row: Sequence[bytes | None]) -> Reply:
    """Parse the row of a step's statement, which is one `runs_reply`.
    The reply's time is in microseconds since 2000."""
    seq, microseconds, *flags = _REPLY.unpack(row[0] or b"")
    return Reply(seq, _MILLENNIUM + timedelta(microseconds=microseconds), *flags)


@lru_cache(maxsize=512)
def numbered(statement: str) -> bytes:
    """Replace `%s` and `%b` with `$1, $2, …`. A step's statements contain no other per cent sign."""
    number = iter(range(1, 65536))
    return re.sub("%[sb]", lambda _: f"${next(number)}", statement).encode()


def encoded(values: Sequence[Any]) -> tuple[list[bytes | None], list[int]]:
    """Return values encoded for libpq, and their formats.
    Raises psycopg.Error for values that PostgreSQL can't store."""
    sent: list[bytes | None] = []
    formats = [_TEXT] * len(values)
    for place, value in enumerate(values):
        kind = type(value)
        if kind is bytes:
            formats[place] = _BINARY
        elif kind is int:
            value = b"%d" % value
        elif value is not None:
            text: str = value if kind is str else _adapt_other(value)
            if "\x00" in text:  # libpq would end the text at a NUL
                raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
            value = text.encode()
        sent.append(value)
    return sent, formats


def _adapt_other(value: Any) -> str:
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
