"""History can't be changed undetected, not even by the owner of the database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import chain
from ledger import events as e
from ledger.append import append
from ledger.models import Event, Head
from ledger.verification.runs import verify
from tests.integration.ledger.conftest import Journal
from tests.tampering import tamper
from tests.world import OLGA

pytestmark = pytest.mark.django_db


def links(run_id: UUID) -> list[chain.Link]:
    rows = Event.objects.filter(run_id=run_id).order_by("seq")
    return [
        chain.Link(
            r.seq,
            r.epoch,
            r.at,
            bytes(r.clear),
            None if r.sealed is None else bytes(r.sealed),
            bytes(r.prev_hash),
            bytes(r.hash),
        )
        for r in rows
    ]


def problems(run_id: UUID) -> list[str]:
    return list(verify(run_id, using=()).problems)


def test_an_untouched_journal_verifies(journal: Journal) -> None:
    run_id = journal()
    assert chain.verify(run_id, links(run_id)) == [] == problems(run_id)
    assert [link.seq for link in links(run_id)] == list(range(1, 8))


def test_the_databases_hash_is_the_one_that_python_computes(journal: Journal) -> None:
    run_id = journal()
    prev = chain.genesis(run_id)
    for link in links(run_id):
        body = chain.body_hash(link.clear, link.sealed)
        assert link.hash == chain.link_hash(prev, link.seq, link.epoch, link.at, body)
        prev = link.hash
    assert bytes(Head.objects.get(pk=run_id).chain) == prev


@settings(max_examples=40, deadline=None)
@given(
    at=st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2400, 1, 1)),
    seq=st.integers(1, 2**62),
    epoch=st.integers(0, 2**62),
)
def test_the_two_hashes_agree_for_every_time_and_number(at: datetime, seq: int, epoch: int) -> None:
    """A float in between would lose microseconds."""
    prev, body, when = hashlib.sha256(b"prev").digest(), hashlib.sha256(b"body").digest(), at.replace(tzinfo=UTC)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sha256(%s || int8send(%s) || int8send(%s) || int8send((extract(epoch FROM "
            "%s::timestamptz) * 1000000)::bigint) || %s)",
            [prev, seq, epoch, when, body],
        )
        assert bytes(cursor.fetchone()[0]) == chain.link_hash(prev, seq, epoch, when, body)


EDITS: dict[str, str] = {
    "the clear part": "UPDATE ledger_event SET clear = "
    'convert_to(\'{"kind":"RunCompleted","slot":null,"attempt":0}\', \'UTF8\') WHERE run_id = %s AND seq = 4',
    "a payload": "UPDATE ledger_event SET sealed = '\\x007b7d'::bytea WHERE run_id = %s AND seq = 4",
    "a payload away": "UPDATE ledger_event SET sealed = NULL WHERE run_id = %s AND seq = 4",
    "a payload into being": "UPDATE ledger_event SET sealed = '\\x0031'::bytea WHERE run_id = %s AND seq = 2",
    "the time": "UPDATE ledger_event SET at = at + interval '1 microsecond' WHERE run_id = %s AND seq = 4",
    "the epoch": "UPDATE ledger_event SET epoch = epoch + 1 WHERE run_id = %s AND seq = 4",
    "the hash": "UPDATE ledger_event SET hash = sha256(hash) WHERE run_id = %s AND seq = 4",
    "the link": "UPDATE ledger_event SET prev_hash = sha256(prev_hash) WHERE run_id = %s AND seq = 4",
    "the last event": "UPDATE ledger_event SET at = at + interval '1 second' WHERE run_id = %s AND seq = 7",
    "the kind": "UPDATE ledger_event SET kind = 'ToolRead' WHERE run_id = %s AND seq = 4",
    "the slot": "UPDATE ledger_event SET slot = '0.1/9' WHERE run_id = %s AND seq = 4",
    "the attempt": "UPDATE ledger_event SET attempt = 3 WHERE run_id = %s AND seq = 4",
    "the fact": "UPDATE ledger_event SET fact = 'other' WHERE run_id = %s AND seq = 4",
    "the head's link": "UPDATE ledger_head SET chain = sha256(chain) WHERE run_id = %s",
    "the head's number": "UPDATE ledger_head SET seq = seq + 1 WHERE run_id = %s",
}


@pytest.mark.parametrize("what", EDITS)
def test_changing_is_found(journal: Journal, what: str) -> None:
    run_id = journal()
    assert tamper(EDITS[what], run_id) == 1
    assert problems(run_id) != []


@pytest.mark.parametrize("seqs", [[1], [4], [7], [6, 7], [2, 3, 4], list(range(1, 8))])
def test_taking_away_is_found(journal: Journal, seqs: list[int]) -> None:
    run_id = journal()
    assert tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq = ANY(%s)", run_id, seqs) == len(seqs)
    assert problems(run_id) != []


def test_taking_away_and_closing_the_gap_is_found(journal: Journal) -> None:
    run_id = journal()
    tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq = 3", run_id)
    for seq in range(4, 8):
        tamper("UPDATE ledger_event SET seq = seq - 1 WHERE run_id = %s AND seq = %s", run_id, seq)
    assert len(problems(run_id)) >= 2


def test_putting_in_is_found(journal: Journal) -> None:
    run_id = journal()
    for seq in (7, 6, 5):
        tamper("UPDATE ledger_event SET seq = seq + 1 WHERE run_id = %s AND seq = %s", run_id, seq)
    tamper(
        "INSERT INTO ledger_event (run_id, seq, epoch, at, kind, attempt, clear, prev_hash, hash) "
        "SELECT run_id, 5, epoch, at, 'RunPaused', 0, clear, hash, sha256(hash) FROM "
        "ledger_event WHERE run_id = %s AND seq = 4",
        run_id,
    )
    assert problems(run_id) != []


def test_adding_at_the_end_behind_the_heads_back_is_found(journal: Journal) -> None:
    """The link itself is correct; only the head knows that it wasn't appended."""
    run_id = journal()
    last = links(run_id)[-1]
    clear = e.encode_clear(e.RunCompleted())
    link = chain.link_hash(last.hash, 8, 0, last.at, chain.body_hash(clear, None))
    tamper(
        "INSERT INTO ledger_event (run_id, seq, epoch, at, kind, attempt, clear, prev_hash, hash) "
        "VALUES (%s, 8, 0, %s, 'RunCompleted', 0, %s, %s, %s)",
        run_id,
        last.at,
        clear,
        last.hash,
        link,
    )
    assert chain.verify(run_id, links(run_id)) == []
    assert problems(run_id) != []


def test_changing_the_order_is_found(journal: Journal) -> None:
    run_id = journal()
    for before, after in ((4, 99), (5, 4), (99, 5)):
        tamper("UPDATE ledger_event SET seq = %s WHERE run_id = %s AND seq = %s", after, run_id, before)
    assert problems(run_id) != []


def test_another_runs_journal_in_its_place_is_found(journal: Journal) -> None:
    mine, other = journal(), journal()
    tamper("DELETE FROM ledger_event WHERE run_id = %s", mine)
    tamper("UPDATE ledger_event SET run_id = %s WHERE run_id = %s", mine, other)
    assert problems(mine) != []


def test_rewriting_everything_after_an_edit_needs_the_head_too(journal: Journal) -> None:
    run_id = journal()
    rows = links(run_id)
    clear = e.encode_clear(e.VisitEntered(node="elsewhere", visit=1))
    prev = rows[0].hash
    for row in rows[1:]:
        own = clear if row.seq == 2 else row.clear
        link = chain.link_hash(prev, row.seq, row.epoch, row.at, chain.body_hash(own, row.sealed))
        tamper(
            "UPDATE ledger_event SET clear = %s, prev_hash = %s, hash = %s WHERE run_id = %s AND seq = %s",
            own,
            prev,
            link,
            run_id,
            row.seq,
        )
        prev = link
    assert chain.verify(run_id, links(run_id)) == []
    assert problems(run_id) != []


def test_two_links_that_are_merely_swapped_in_content_are_found() -> None:
    run_id = uuid4()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    made: list[chain.Link] = []
    prev = chain.genesis(run_id)
    for seq in range(1, 6):
        clear = f"event {seq}".encode()
        link = chain.link_hash(prev, seq, 0, at, chain.body_hash(clear, None))
        made.append(chain.Link(seq, 0, at, clear, None, prev, link))
        prev = link
    assert chain.verify(run_id, made) == []
    assert chain.verify(uuid4(), made) != []
    assert chain.verify(run_id, [made[1], made[0], *made[2:]]) != []
    assert chain.verify(run_id, made[1:]) != []
    assert chain.verify(run_id, []) == []


@settings(max_examples=100, deadline=None)
@given(field=st.sampled_from(["seq", "epoch", "at", "clear", "sealed", "prev_hash", "hash"]), which=st.integers(0, 4))
def test_every_field_of_every_link_counts(field: str, which: int) -> None:
    run_id = UUID(int=7)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    made: list[chain.Link] = []
    prev = chain.genesis(run_id)
    for seq in range(1, 6):
        body = chain.body_hash(b"c%d" % seq, b"s%d" % seq)
        link = chain.link_hash(prev, seq, 1, at, body)
        made.append(chain.Link(seq, 1, at, b"c%d" % seq, b"s%d" % seq, prev, link))
        prev = link
    change: dict[str, Callable[[Any], Any]] = {
        "seq": lambda v: v + 1,
        "epoch": lambda v: v + 1,
        "at": lambda v: v + timedelta(microseconds=1),
    }
    values = {f: getattr(made[which], f) for f in chain.Link.__slots__}
    values[field] = change.get(
        field, lambda v: v + b"!" if field in ("clear", "sealed") else hashlib.sha256(v).digest()
    )(values[field])
    made[which] = chain.Link(**values)
    assert chain.verify(run_id, made) != []


def test_appending_goes_on_from_where_the_chain_stands(journal: Journal) -> None:
    run_id = journal()
    assert append(run_id, e.RunRetried(by=OLGA.ref, reopened=[]), by=OLGA) == 8
    assert problems(run_id) == []
