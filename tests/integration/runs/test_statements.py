"""A step's statement reaches the server unchanged, whatever its values hold."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from ledger import events as e
from ledger.append import lines
from ledger.codes import LENGTH
from runs.journal import libpq
from tests.integration.runs.stage import Stage

VALUES: list[tuple[str, Any, bytes]] = [
    ("text", 'a "quoted" \\ text, {with} é', 'a "quoted" \\ text, {with} é'.encode()),
    ("bytea", b"\x00\xff'\\", b"\x00\xff'\\"),
    ("bigint", -(2**62), (-(2**62)).to_bytes(8, "big", signed=True)),
    ("uuid", UUID(int=5), UUID(int=5).bytes),
    ("timestamptz", datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC), (1_000_000).to_bytes(8, "big")),
]


def asked(stage: Stage, statement: str, values: list[Any]) -> list[bytes | None]:
    async def ask() -> list[bytes | None]:
        async with (await stage.connected()).connection() as link:
            return await libpq.one_row(link, libpq.as_sent(statement, values))

    answer: list[bytes | None] = stage.wait(ask())
    return answer


@pytest.mark.parametrize(("kind", "value", "stored"), VALUES, ids=[kind for kind, _, _ in VALUES])
def test_a_value_arrives_as_it_was_given(stage: Stage, kind: str, value: Any, stored: bytes) -> None:
    assert asked(stage, f"SELECT %s::{kind}, %s::{kind}", [value, None]) == [stored, None]


def test_a_list_arrives_element_by_element(stage: Stage) -> None:
    texts, raw = ["a,b", '"', "\\", "NULL", "", None, "{}"], [b"\x00\\", None, b""]
    same = (
        "SELECT %s::text[] = ARRAY['a,b', '\"', '\\', 'NULL', '', NULL, '{}'], %s::bytea[] = "
        "ARRAY['\\x005c'::bytea, NULL, '']"
    )
    assert asked(stage, same, [texts, raw]) == [b"\x01", b"\x01"]


def test_a_text_with_a_nul_is_refused_and_not_cut_short(stage: Stage) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        asked(stage, "SELECT %s::text", ["a\x00b"])


def test_what_the_server_refuses_is_raised_as_what_it_is(stage: Stage) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        asked(stage, "SELECT 1 / %s::int", [0])
    assert asked(stage, "SELECT 1 / %s::int", [1]) == [b"\x00\x00\x00\x01"]


def test_more_statements_than_are_kept_prepared_still_run(stage: Stage) -> None:
    async def ask() -> list[list[bytes | None]]:
        async with (await stage.connected()).connection() as link:
            return [
                await libpq.one_row(link, libpq.as_sent(f"SELECT %s::text || '{n}'", ["x"]))
                for n in range(libpq.MAX_PREPARED + 3)
            ]

    assert stage.wait(ask()) == [[b"x%d" % n] for n in range(libpq.MAX_PREPARED + 3)]


@pytest.mark.parametrize("turns", range(1, 6))
def test_a_statement_that_is_cut_off_leaves_the_connection_as_good_as_before(stage: Stage, turns: int) -> None:
    """A drain's deadline may come while the statement is prepared: then only the server knows it."""

    async def ask() -> list[list[bytes | None]]:
        async with (await stage.connected()).connection() as link:
            cut = asyncio.ensure_future(libpq.one_row(link, libpq.as_sent("SELECT %s::text || 'cut'", ["x"])))
            for _ in range(turns):
                await asyncio.sleep(0)
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)
            return [
                await libpq.one_row(link, libpq.as_sent(f"SELECT %s::text || '{value}'", ["x"]))
                for value in ("cut", "other")
            ]

    assert stage.wait(ask()) == [[b"xcut"], [b"xother"]]


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 40])
def test_any_number_of_events_arrives_in_order(stage: Stage, count: int) -> None:
    found, values = lines(
        [e.ValueRead(slot=f"0.1/{i}", what="now", payload={"é": [i]}) for i in range(count)], uuid4(), 0
    )
    query = (
        f"SELECT array_to_string(ARRAY(SELECT slot || fact || length(clear) || length(sealed) || "
        f"length(body) FROM unnest({found})), ' ')"
    )
    (answer,) = asked(stage, query, values)
    clear = len(e.encode_clear(e.ValueRead(slot="0.1/1", what="now")))
    expected = [f"0.1/{i}result{clear + len(str(i)) - 1}{10 + len(str(i))}{32 + LENGTH}" for i in range(count)]
    assert answer == " ".join(expected).encode()
