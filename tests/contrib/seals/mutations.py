"""Random mutations by a superuser of the database, with or without the installation's keys."""

# Each mutation returns the runs that verification must name. All events are sealed before, and the witness's copy is
# out of reach. An attacker with the keys can repair chain, codes and heads after a change; one who has the data folder
# can also sign all seals again.

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import connection

from approvals.models import Decision
from durableagents.contrib.seals.keyring import signing_key
from durableagents.contrib.seals.merkle import merkle_root
from durableagents.contrib.seals.models import Seal
from durableagents.contrib.seals.records import NO_SEAL
from durableagents.contrib.seals.verification import leaves_of
from ledger.chain import body_hash, genesis, link_hash
from ledger.codes import event_code
from ledger.keys import code_key
from ledger.models import Event, Head
from ledger.verification.runs import tables
from tests.tampering import run_sql, tamper

Runs = set[UUID]
_COLUMNS = ("clear", "sealed", "hash", "prev_hash", "code")
_EVENT = "run_id, seq, epoch, at, kind, slot, attempt, fact, clear, sealed, prev_hash, hash, code"


@dataclass
class Attack:
    """One mutation, chosen by `random`. `has_keys`: what it changed is repaired with the installation's keys."""

    random: random.Random
    has_keys: bool

    @property
    def runs(self) -> list[UUID]:
        return list(Head.objects.order_by("run_id").values_list("run_id", flat=True))

    def pick(self) -> tuple[UUID, int]:
        """Return a run and one of its events."""
        run_id = self.random.choice(self.runs)
        return run_id, self.random.choice(self.seqs(run_id))

    def seqs(self, run_id: UUID) -> list[int]:
        return list(Event.objects.filter(run_id=run_id).order_by("seq").values_list("seq", flat=True))

    def repair(self, run_id: UUID) -> None:
        """Compute codes, chain and head again."""
        if not self.has_keys:
            return
        prev, size, last = genesis(run_id), 0, 0
        for row in Event.objects.filter(run_id=run_id).order_by("seq"):
            clear, sealed = bytes(row.clear), None if row.sealed is None else bytes(row.sealed)
            body = body_hash(clear, sealed)
            link = link_hash(prev, row.seq, row.epoch, row.at, body)
            code = None if row.code is None else event_code(code_key(), run_id, row.seq, body)
            tamper(
                "UPDATE ledger_event SET prev_hash = %s, hash = %s, code = %s WHERE run_id = %s AND seq = %s",
                *(prev, link, code, run_id, row.seq),
            )
            prev, size, last = link, size + len(clear) + len(sealed or b""), row.seq
        tamper("UPDATE ledger_head SET seq = %s, chain = %s, bytes = %s WHERE run_id = %s", last, prev, size, run_id)

    def move(self, run_id: UUID, seq: int, to: int) -> None:
        tamper("UPDATE ledger_event SET seq = %s WHERE run_id = %s AND seq = %s", to, run_id, seq)

    def make_room(self, run_id: UUID, seq: int) -> None:
        for each in reversed([each for each in self.seqs(run_id) if each >= seq]):
            self.move(run_id, each, each + 1)


def alter_a_byte(by: Attack) -> Runs:
    run_id, seq = by.pick()
    row = Event.objects.get(run_id=run_id, seq=seq)
    column = by.random.choice([name for name in _COLUMNS if getattr(row, name)])
    if by.has_keys:  # a changed hash or code would be repaired
        column = by.random.choice([name for name in ("clear", "sealed") if getattr(row, name)])
    data = bytearray(getattr(row, column))
    data[by.random.randrange(len(data))] ^= by.random.randrange(1, 256)
    tamper(f"UPDATE ledger_event SET {column} = %s WHERE run_id = %s AND seq = %s", bytes(data), run_id, seq)
    by.repair(run_id)
    return {run_id}


def alter_a_column(by: Attack) -> Runs:
    run_id, seq = by.pick()
    change = by.random.choice(["at = at + interval '1 microsecond'", "epoch = epoch + 1"])
    if not by.has_keys:
        change = by.random.choice([change, "kind = 'RunFailed'", "slot = '9.9/9'", "attempt = attempt + 1"])
    if "kind" in change and Event.objects.get(run_id=run_id, seq=seq).kind == "RunFailed":
        change = "kind = 'RunCompleted'"
    tamper(f"UPDATE ledger_event SET {change} WHERE run_id = %s AND seq = %s", run_id, seq)
    by.repair(run_id)
    return {run_id}


def delete_an_event(by: Attack) -> Runs:
    run_id, seq = by.pick()
    tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq = %s", run_id, seq)
    if by.random.random() < 0.5:
        for each in [each for each in by.seqs(run_id) if each > seq]:
            by.move(run_id, each, each - 1)
    by.repair(run_id)
    return {run_id}


def insert_an_event(by: Attack) -> Runs:
    """Put a copy of another event before one. A copy of the last event before itself would be an event added at the
    end: with the keys, nobody can tell that from the application's own."""
    run_id, seq = by.pick()
    source, source_seq = by.pick()
    while (source, source_seq) == (run_id, seq):
        source, source_seq = by.pick()
    by.make_room(run_id, seq)
    source_seq += source == run_id and source_seq >= seq
    tamper(
        f"INSERT INTO ledger_event ({_EVENT}) SELECT %s, %s, epoch, at, kind, NULL, attempt, NULL, clear, sealed, "
        "prev_hash, hash, code FROM ledger_event WHERE run_id = %s AND seq = %s",
        *(run_id, seq, source, source_seq),
    )
    by.repair(run_id)
    return {run_id}


def append_an_event(by: Attack) -> Runs:
    """Add an event at the end with correct links, and set the head. Without the keys it has no code."""
    run_id = by.random.choice(by.runs)
    clear = json.dumps({"kind": "RunPaused", "by": "user:olga"}, separators=(",", ":")).encode()
    head = Head.objects.get(pk=run_id)
    link = link_hash(bytes(head.chain), head.seq + 1, 0, _now(), body_hash(clear, None))
    tamper(
        f"INSERT INTO ledger_event ({_EVENT}) "
        "VALUES (%s, %s, 0, %s, 'RunPaused', NULL, 0, NULL, %s, NULL, %s, %s, NULL)",
        *(run_id, head.seq + 1, _now(), clear, bytes(head.chain), link),
    )
    tamper(
        "UPDATE ledger_head SET seq = seq + 1, chain = %s, bytes = bytes + %s WHERE run_id = %s",
        *(link, len(clear), run_id),
    )
    return {run_id}


def reorder_two_events(by: Attack) -> Runs:
    run_id = by.random.choice([each for each in by.runs if len(by.seqs(each)) > 1])
    one, two = by.random.sample(by.seqs(run_id), 2)
    for seq, to in ((one, 10**6), (two, one), (10**6, two)):
        by.move(run_id, seq, to)
    by.repair(run_id)
    return {run_id}


def truncate_the_tail(by: Attack) -> Runs:
    """Cut off the last events and set the head back: with the keys nothing in the journal shows it."""
    run_id, seq = by.pick()
    tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq >= %s", run_id, seq)
    tamper("DELETE FROM ledger_ledgerentry WHERE run_id = %s AND seq >= %s", run_id, seq)
    by.repair(run_id)
    return {run_id}


def rewrite_the_tail(by: Attack) -> Runs:
    """Replace the last events by copies of an earlier one, as many or more."""
    run_id, seq = by.pick()
    tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq > %s", run_id, seq)
    last = Head.objects.get(pk=run_id).seq
    for n in range(seq + 1, last + 1 + by.random.randrange(3)):
        tamper(
            f"INSERT INTO ledger_event ({_EVENT}) SELECT run_id, %s, epoch, at + interval '1 second', kind, NULL, "
            "attempt, NULL, clear, sealed, prev_hash, hash, code FROM ledger_event WHERE run_id = %s AND seq = %s",
            *(n, run_id, seq),
        )
    if seq == last:
        tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq = %s", run_id, seq)
    by.repair(run_id)
    return {run_id}


def forge_a_decision(by: Attack) -> Runs:
    """Change a decision, remove it, or add one; with the keys, its code is right."""
    decision = by.random.choice(list(Decision.objects.order_by("pk")))
    run_id = decision.approval.run_id
    how = by.random.choice(["change", "remove", "add"])
    if how == "remove":
        tamper("DELETE FROM approvals_decision WHERE id = %s", decision.pk)
        return {run_id}
    changed = {
        "verdict": "reject" if decision.verdict == "approve" else "approve",
        "justification": f"{decision.justification} indeed",
        "by": "user:mallory",
        "person": 10**6,
    }
    name = by.random.choice(sorted(changed))
    setattr(decision, name, changed[name])
    if how == "add":
        tamper("SELECT setval(pg_get_serial_sequence('approvals_decision', 'id'), 1000000)")
        decision.pk, decision.closes = None, False
    if by.has_keys:
        decision.seal()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        decision.save(force_insert=how == "add")
        cursor.execute("SET LOCAL session_replication_role = origin")
    return {run_id}


def reset_a_head(by: Attack) -> Runs:
    run_id, seq = by.pick()
    row = Event.objects.get(run_id=run_id, seq=seq)
    before = bytes(row.prev_hash)
    tamper("UPDATE ledger_head SET seq = %s, chain = %s WHERE run_id = %s", seq - 1, before, run_id)
    return {run_id}


def swap_two_runs(by: Attack) -> Runs:
    """Exchange all events of two runs, or the events of one place."""
    one, two = by.random.sample(by.runs, 2)
    places: Any = None
    if by.random.random() < 0.5:
        places = [by.random.choice(sorted({*by.seqs(one)} & {*by.seqs(two)}))]
        # Or the index on slots could refuse the exchange.
        for each in (one, two):
            tamper("UPDATE ledger_event SET slot = NULL, fact = NULL WHERE run_id = %s AND seq = ANY(%s)", each, places)
    nowhere = UUID(int=1)
    for run_id, to in ((one, nowhere), (two, one), (nowhere, two)):
        tamper(
            "UPDATE ledger_event SET run_id = %s WHERE run_id = %s AND (%s::bigint[] IS NULL OR seq = ANY(%s))",
            *(to, run_id, places, places),
        )
    by.repair(one)
    by.repair(two)
    return {one, two}


def delete_a_run(by: Attack) -> Runs:
    """Remove every row of a run; sometimes also from the seals."""
    run_id = by.random.choice(by.runs)
    for table, column in tables.items():
        tamper(f"DELETE FROM {table} WHERE {column} = %s", run_id)
    tamper("DELETE FROM runs_run WHERE id = %s", run_id)
    if by.random.random() < 0.5:
        tamper("DELETE FROM seals_sealedhead WHERE run_id = %s", run_id)
    if by.has_keys:
        sign_all_again()
    return {run_id}


def delete_the_last_seals(by: Attack) -> Runs:
    last = Seal.objects.order_by("-number").values_list("number", flat=True)
    first = by.random.randint(1, last[0])
    gone = {leaf.run_id for n in range(first, last[0] + 1) for leaf in leaves_of(n)}
    tamper("DELETE FROM seals_seal WHERE number >= %s", first)
    if by.random.random() < 0.8:
        tamper("DELETE FROM seals_sealedhead WHERE seal >= %s", first)
    if by.random.random() < 0.5:
        tamper("DELETE FROM seals_delivery")
    return gone


def cut_off_and_cover_up(by: Attack) -> Runs:
    """Cut off a run's tail and remove all that tells of it in the seals; with the keys, sign the seals again."""
    run_id, seq = by.pick()
    tamper("DELETE FROM ledger_event WHERE run_id = %s AND seq >= %s", run_id, seq)
    tamper("DELETE FROM seals_sealedhead WHERE run_id = %s AND seq >= %s", run_id, seq)
    keys, by.has_keys = by.has_keys, True
    by.repair(run_id)
    by.has_keys = keys
    if keys:
        sign_all_again()
    return {run_id}


def change_a_sealed_head(by: Attack) -> Runs:
    rows = run_sql("SELECT run_id, seq FROM seals_sealedhead ORDER BY run_id, seq")
    run_id, seq = by.random.choice(rows)
    change = by.random.choice(["hash = sha256(hash)", "seq = seq + 1000", "seal = seal + 1000"])
    tamper(f"UPDATE seals_sealedhead SET {change} WHERE run_id = %s AND seq = %s", run_id, seq)
    if by.has_keys:
        sign_all_again()
    return {run_id}


def sign_all_again() -> None:
    """Give every seal the root of the heads that are left, and sign it: the chain of seals then holds."""
    previous, private = NO_SEAL, signing_key()[1]
    for seal in Seal.objects.order_by("number"):
        leaves = leaves_of(seal.number)
        record = replace(
            seal.record, previous=previous, root=merkle_root(x.data for x in leaves), count=len(leaves), signature=b""
        )
        record = replace(record, signature=private.sign(record.message))
        tamper(
            "UPDATE seals_seal SET previous = %s, root = %s, count = %s, signature = %s WHERE number = %s",
            *(record.previous, record.root, record.count, record.signature, record.number),
        )
        previous = record.hash


def _now() -> Any:
    return run_sql("SELECT now()")[0][0]


MUTATIONS: tuple[Callable[[Attack], Runs], ...] = (
    alter_a_byte,
    alter_a_column,
    delete_an_event,
    insert_an_event,
    append_an_event,
    reorder_two_events,
    truncate_the_tail,
    rewrite_the_tail,
    forge_a_decision,
    reset_a_head,
    swap_two_runs,
    delete_a_run,
    delete_the_last_seals,
    cut_off_and_cover_up,
    change_a_sealed_head,
)
