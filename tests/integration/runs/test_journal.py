from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import pytest
from django.db import connection

from ledger import events as e
from ledger.append import append
from ledger.errors import StaleLease
from ledger.models import Head, LedgerEntry
from ledger.verification.runs import verify
from runs.engine import memory
from runs.engine.budget import RESOURCES, Caps
from runs.engine.errors import ApprovalExpired, ApprovalMissing, BudgetShort
from runs.engine.journal import Entry, GateOpening, Journal, Reply, Snapshot, Usage, WaitSpec
from runs.engine.memory import MemoryJournal
from runs.journal.postgres import PgJournal
from runs.models import Run, Wait
from tests.integration.runs import stage as real
from tests.integration.runs.stage import Stage, calling, fresh
from tests.waiting import eventually
from tests.world import OLGA, Toolbox, agent_of, ends_with
from tests.writing import intend, record

pytestmark = pytest.mark.every(4)

Flag = Literal["pause", "cancel"]


class InMemory:
    def __init__(self) -> None:
        self.run = memory.start(agent_of(ends_with(1)), {"text": "go"})
        self.journal: MemoryJournal = self.run.claim()

    def wait(self, doing: Any) -> Any:
        return asyncio.run(doing)

    def claim_again(self) -> MemoryJournal:
        return self.run.claim()

    def ask(self, *flags: Flag) -> None:
        self.run.is_pause_requested, self.run.is_cancel_requested = "pause" in flags, "cancel" in flags

    def flags(self) -> set[Flag]:
        found: dict[Flag, bool] = {"pause": self.run.is_pause_requested, "cancel": self.run.is_cancel_requested}
        return {flag for flag, is_set in found.items() if is_set}

    def resolve(self, wait: WaitSpec, resolution: str, *, grant: str | None = None) -> None:
        self.run.resolve(wait.id, resolution, grant_hash=grant)
        self.run.waits[wait.id].grant_expires_at = datetime.now(UTC) + timedelta(minutes=1)

    def outlive(self, wait: WaitSpec) -> None:
        self.run.waits[wait.id].grant_expires_at = datetime.now(UTC)

    def resolution(self, wait: WaitSpec) -> str | None:
        return self.run.waits[wait.id].resolution

    def deadline(self, wait: WaitSpec) -> datetime:
        return self.run.waits[wait.id].spec.deadline

    def events(self) -> list[e.Event]:
        return self.run.events

    def facts(self) -> list[tuple[str, int, str]]:
        return [(x.slot, x.attempt, x.fact) for x in self.run.entries]

    def state(self) -> str:
        return self.run.state

    def used(self) -> Usage:
        return self.run.used

    def cap(self, **caps: int) -> None:
        self.run.caps = Caps(**caps)


class InPostgres:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.run = stage.start(agent_of(ends_with(1)), text="go")
        self.journal: Journal = stage.take(self.run)

    def wait(self, doing: Any) -> Any:
        return self.stage.wait(doing)

    def claim_again(self) -> Journal:
        Run.objects.filter(pk=self.run.pk).update(owner=None, ready_at=real.now())
        return self.stage.take(self.run, self.stage.hire())

    def ask(self, *flags: Flag) -> None:
        head = real.head(self.run)
        head.is_pause_requested, head.is_cancel_requested = "pause" in flags, "cancel" in flags
        head.save(update_fields=["is_pause_requested", "is_cancel_requested"])

    def flags(self) -> set[Flag]:
        head = real.head(self.run)
        found: dict[Flag, bool] = {"pause": head.is_pause_requested, "cancel": head.is_cancel_requested}
        return {flag for flag, is_set in found.items() if is_set}

    def resolve(self, wait: WaitSpec, resolution: str, *, grant: str | None = None) -> None:
        at = real.now()
        Wait.objects.filter(pk=wait.id).update(
            resolution=resolution,
            resolved_by="test",
            resolved_at=at,
            grant_hash=grant,
            grant_expires_at=at + timedelta(minutes=1),
        )
        append(
            self.run.id,
            e.WaitResolved(
                slot=wait.slot, attempt=wait.attempt, wait=wait.kind, n=wait.n, resolution=resolution, by="test"
            ),
            by=OLGA,
        )

    def outlive(self, wait: WaitSpec) -> None:
        Wait.objects.filter(pk=wait.id).update(grant_expires_at=real.now())

    def resolution(self, wait: WaitSpec) -> str | None:
        return Wait.objects.get(pk=wait.id).resolution

    def deadline(self, wait: WaitSpec) -> datetime:
        return Wait.objects.get(pk=wait.id).deadline

    def events(self) -> list[e.Event]:
        return real.events(self.run)

    def facts(self) -> list[tuple[str, int, str]]:
        return list(
            LedgerEntry.objects.filter(run_id=self.run.id).order_by("id").values_list("slot", "attempt", "fact")
        )

    def state(self) -> str:
        return str(real.fresh(self.run).state)

    def used(self) -> Usage:
        head = real.head(self.run)
        return Usage.of(head)

    def cap(self, **caps: int) -> None:
        Head.objects.filter(pk=self.run.pk).update(**{f"cap_{name}": caps.get(name) for name in RESOURCES})


class Accompanied(PgJournal):
    """Every write shares its batch with another run's step."""

    neighbour: PgJournal

    async def _commit(self, *write: Any, **more: Any) -> Reply:
        reply, _ = await asyncio.gather(super()._commit(*write, **more), record(self.neighbour, [read()]))
        return reply


class InCompany(InPostgres):
    def __init__(self, stage: Stage) -> None:
        run = stage.start(agent_of(ends_with(1)), text="go")
        self.neighbour = stage.take(run)
        super().__init__(stage)
        self.journal = self.accompanied(self.journal)

    def accompanied(self, journal: Any) -> Journal:
        journal.__class__, journal.neighbour = Accompanied, self.neighbour
        return journal  # type: ignore[no-any-return]

    def claim_again(self) -> Journal:
        return self.accompanied(super().claim_again())


Kept = InMemory | InPostgres
KEEPERS: dict[str, Any] = {"memory": InMemory, "postgres": InPostgres, "company": InCompany}


@pytest.fixture(params=KEEPERS)
def kept(request: pytest.FixtureRequest) -> Kept:
    keeper = KEEPERS[request.param]
    return keeper() if keeper is InMemory else keeper(request.getfixturevalue("stage"))


_numbers = itertools.count(1)


def read(value: Any = 1, slot: str = "") -> e.ValueRead:
    return e.ValueRead(slot=slot or f"0.9/{next(_numbers)}", what="now", payload=value)


def invoked(slot: str = "0.1/1", attempt: int = 0) -> e.ToolInvoked:
    return e.ToolInvoked(
        slot=slot,
        attempt=attempt,
        tool="order",
        replay_class="idempotent_with_key",
        requested_hash="h",
        executed_hash="h",
    )


def entry(fact: str = "pending", slot: str = "0.1/1", attempt: int = 0) -> Entry:
    return Entry(slot, attempt, fact, "order", "idempotent_with_key", key="k", input_hash="h")


def spec(kept: Kept, kind: str = "approval", slot: str = "0.1/1", n: int = 0, seconds: float = 3600) -> WaitSpec:
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
    return WaitSpec(kept.journal.run_id, slot, 0, kind, n, deadline, {"title": "x"})


def snapshot(node: str = "one", visit: int = 1, state: Any = None) -> Snapshot:
    return Snapshot(node, visit, 0, "print", state)


def opened(kept: Kept, wait: WaitSpec) -> WaitSpec:
    event = e.WaitOpened(slot=wait.slot, wait=wait.kind, deadline=wait.deadline.isoformat(), n=wait.n)
    kept.wait(record(kept.journal, [event], wait=wait))
    return wait


# --- the fence ---

WRITES: dict[str, Callable[[Journal], Any]] = {
    "load": lambda j: j.load(),
    "intend": lambda j: intend(j, [invoked()], entry=entry()),
    "record": lambda j: record(j, [read()], entries=[entry("committed")], usage=Usage(steps=1), snapshot=snapshot()),
    "park": lambda j: j.leave("park", [e.RunParked(state="waiting_event", waits=[])], state="waiting_event"),
    "release": lambda j: j.leave("release", [e.RunReleased(reason="drain")], state="running"),
    "end": lambda j: j.leave("end", [e.RunCompleted()], state="completed"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_stale_lease_writes_and_reads_nothing(kept: Kept, write: str) -> None:
    kept.claim_again()
    before = kept.events(), kept.facts(), kept.state(), kept.used()
    with pytest.raises(StaleLease):
        kept.wait(WRITES[write](kept.journal))
    assert (kept.events(), kept.facts(), kept.state(), kept.used()) == before


@pytest.mark.parametrize("write", WRITES)
def test_who_let_go_has_no_lease_any_more(kept: Kept, write: str) -> None:
    kept.wait(kept.journal.leave("release", [e.RunReleased(reason="drain")], state="running"))
    before = kept.events()
    with pytest.raises(StaleLease):
        kept.wait(WRITES[write](kept.journal))
    assert kept.events() == before


def test_each_claim_is_a_new_epoch_on_record(kept: Kept) -> None:
    for _ in range(3):
        kept.claim_again()
    assert [x.epoch for x in kept.events() if isinstance(x, e.RunClaimed)] == [1, 2, 3, 4]


# --- facts ---


@pytest.mark.parametrize("write", ["intend", "record", "leave"])
def test_a_fact_is_written_once_and_what_came_with_a_second_one_is_not_there(kept: Kept, write: str) -> None:
    first = read(1, "0.1/7")
    kept.wait(record(kept.journal, [first]))
    before = kept.events(), kept.facts(), kept.state(), kept.used()
    doing: dict[str, Callable[[], Any]] = {
        "intend": lambda: intend(kept.journal, [invoked("0.1/8"), read(2, "0.1/7")], entry=entry(slot="0.1/8")),
        "record": lambda: record(
            kept.journal, [read(3), read(2, "0.1/7")], entries=[entry("failed")], usage=Usage(steps=1)
        ),
        "leave": lambda: kept.journal.leave(
            "release", [e.RunReleased(reason="drain"), read(2, "0.1/7")], state="running"
        ),
    }
    with pytest.raises(Exception, match=r"0\.1/7|one_fact_per_slot"):
        kept.wait(doing[write]())
    assert (kept.events(), kept.facts(), kept.state(), kept.used()) == before
    kept.wait(record(kept.journal, [read()]))  # the journal works as before


def test_another_attempt_or_another_fact_of_a_slot_is_another_fact(kept: Kept) -> None:
    j = kept.journal
    kept.wait(intend(j, [invoked()], entry=entry()))
    kept.wait(record(j, [e.ToolReturned(slot="0.1/1", tool="order", payload={"x": 1})], entries=[entry("committed")]))
    kept.wait(intend(j, [invoked(attempt=1)], entry=entry(attempt=1)))
    assert kept.facts() == [("0.1/1", 0, "pending"), ("0.1/1", 0, "committed"), ("0.1/1", 1, "pending")]


@pytest.mark.parametrize("payload", [None, {"a": [1, 2.5, None, "ü", {"b": True}]}, "x" * 10_000, "\x00", 2**60, []])
def test_what_was_written_is_read_back_as_it_was(kept: Kept, payload: Any) -> None:
    event = read(payload)
    kept.wait(record(kept.journal, [event]))
    history = kept.wait(kept.journal.load())
    assert history.tail[-1] == event
    assert isinstance(history.created, e.RunCreated) and history.created.payload["text"] == "go"


def test_sequence_numbers_are_gapless_and_the_reply_tells_the_last(kept: Kept) -> None:
    first: Reply = kept.wait(record(kept.journal, [read()]))
    second: Reply = kept.wait(record(kept.journal, [read(), read(), read()]))
    assert second.seq == first.seq + 3 == kept.journal.seq == len(kept.events())


def test_time_comes_from_the_journal_and_never_runs_backwards(kept: Kept) -> None:
    times = [kept.journal.now()]
    for _ in range(3):
        reply = kept.wait(record(kept.journal, [read()]))
        times += [reply.at, kept.journal.now()]
    assert all(at.tzinfo is not None for at in times) and times == sorted(times)


@pytest.mark.parametrize("write", ["repeat", "unknown", "question"])
def test_a_call_that_has_been_answered_is_neither_repeated_nor_called_unknown(kept: Kept, write: str) -> None:
    """A callback may come while the worker still thinks its call unanswered."""
    j = kept.journal
    kept.wait(intend(j, [invoked()], entry=entry()))
    kept.wait(record(j, [e.CallbackReceived(slot="0.1/1", tool="order", payload={"ref": "x"})]))
    before = kept.events(), kept.facts()
    repeat = e.ToolRedispatched(slot="0.1/1", tool="order", n=1)
    unknown = e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=True)
    wait = spec(kept, "reconcile")
    writes = {
        "repeat": lambda: intend(j, [repeat]),
        "unknown": lambda: record(j, [unknown], entries=[entry("unknown")], wait=wait),
        "question": lambda: record(j, [wait.opened()], wait=wait),
    }
    reply: Reply = kept.wait(writes[write]())
    assert not reply.is_done and reply.stop is None
    assert (kept.events(), kept.facts()) == before
    kept.wait(intend(j, [e.ToolRedispatched(slot="0.1/2", tool="order", n=1)]))


@pytest.mark.parametrize("first", ["callback", "witness"])
@pytest.mark.parametrize("second", ["refused", "answered"])
def test_of_two_outcomes_of_a_call_the_first_stands(kept: Kept, first: str, second: str) -> None:
    j = kept.journal
    kept.wait(intend(j, [invoked()], entry=entry()))
    found = e.ToolReconciled(slot="0.1/1", tool="order", verdict="happened", by="worker:x")
    came = e.CallbackReceived(slot="0.1/1", tool="order", payload={"ref": "x"})
    kept.wait(record(j, [came if first == "callback" else found]))
    before = kept.events(), kept.facts()
    no = e.ToolFailed(slot="0.1/1", tool="order", code="no", requested_hash="h")
    yes = e.ToolReturned(slot="0.1/1", tool="order", payload={"x": 1})
    reply: Reply = kept.wait(record(j, [no if second == "refused" else yes]))
    assert not reply.is_done and (kept.events(), kept.facts()) == before
    assert not kept.wait(j.may_repeat("0.1/1", 0)).is_done


_REFUSED = e.ToolFailed(slot="0.1/1", tool="order", code="no", requested_hash="h")
_FOUND = e.ToolReconciled(slot="0.1/1", tool="order", verdict="did_not", by="user:olga")
_CALLED_BACK = e.CallbackArrivedLate(slot="0.1/1", tool="order")


def _late(outcome: str) -> e.Event:
    return e.ToolAnsweredLate(slot="0.1/1", tool="order", by="worker:x", outcome=outcome, contradicts="")


# What is recorded of an attempt, and whether another may begin.
CONTRADICTED: dict[str, tuple[list[e.Event], bool]] = {
    "refused": ([_REFUSED], True),
    "found not to have happened": ([_FOUND], True),
    "and a witness says the same": ([_FOUND, _late("refused")], True),
    "and a witness says that it happened": ([_FOUND, _late("happened")], False),
    "and a witness says that it was taken": ([_FOUND, _late("accepted")], False),
    "and it was called back": ([_FOUND, _CALLED_BACK], False),
    "refused, and called back": ([_REFUSED, _CALLED_BACK], False),
    "contradicted, and let fail": ([_FOUND, _CALLED_BACK, replace(_FOUND, n=1, verdict="fail")], False),
    "contradicted, and found so again": ([_FOUND, _CALLED_BACK, replace(_FOUND, n=1)], True),
    "contradicted, found so again, and contradicted again": (
        [_FOUND, _CALLED_BACK, replace(_FOUND, n=1), _late("happened")],
        False,
    ),
    "told before the person said so": ([_late("happened"), _FOUND], True),
}


@pytest.mark.parametrize("told", CONTRADICTED)
def test_no_further_attempt_is_begun_while_a_witness_belies_what_is_on_record(kept: Kept, told: str) -> None:
    j, (answer, is_free) = kept.journal, CONTRADICTED[told]
    kept.wait(intend(j, [invoked()], entry=entry()))
    for event in answer:
        kept.wait(record(j, [event]))
    before = kept.events(), kept.facts()
    reply: Reply = kept.wait(intend(j, [invoked(attempt=1)], entry=entry(attempt=1)))
    assert reply.is_done is is_free and reply.stop is None
    assert is_free or (kept.events(), kept.facts()) == before
    assert kept.wait(intend(j, [invoked("0.1/2")], entry=entry(slot="0.1/2"))).is_done


@pytest.fixture
def inspected() -> Iterator[e.Event]:
    """An event of a future kind with the field names that tell a call's outcome."""

    class CallInspected(e.Event):
        outcome: str
        verdict: str

    yield CallInspected(slot="0.1/1", outcome="passed", verdict="happened")
    del e.KINDS["CallInspected"]


def test_what_became_of_a_call_is_told_by_kinds_not_by_names_of_fields(kept: Kept, inspected: e.Event) -> None:
    j = kept.journal
    kept.wait(intend(j, [invoked()], entry=entry()))
    kept.wait(record(j, [inspected]))
    assert kept.wait(j.may_repeat("0.1/1", 0)).is_done, "it is no outcome"
    kept.wait(record(j, [_REFUSED, inspected]))
    assert kept.wait(intend(j, [invoked(attempt=1)], entry=entry(attempt=1))).is_done, "nor does it belie one"
    assert kept.wait(record(j, [replace(_REFUSED, attempt=1)])).is_done


@pytest.mark.parametrize("flag", [None, "pause", "cancel"])
def test_whether_an_announced_call_may_go_out_again_is_asked_and_nothing_written(kept: Kept, flag: Flag | None) -> None:
    j = kept.journal
    kept.wait(intend(j, [invoked()], entry=entry()))
    before = kept.events(), kept.facts()
    assert kept.wait(j.may_repeat("0.1/1", 0)).is_done
    if flag is not None:
        kept.ask(flag)
        reply: Reply = kept.wait(j.may_repeat("0.1/1", 0))
        assert not reply.is_done and reply.stop == flag
        kept.ask()
    assert (kept.events(), kept.facts()) == before
    kept.wait(record(j, [e.CallbackReceived(slot="0.1/1", tool="order", payload={"ref": "x"})]))
    answered: Reply = kept.wait(j.may_repeat("0.1/1", 0))
    assert not answered.is_done and answered.stop is None
    assert kept.wait(j.may_repeat("0.1/1", 1)).is_done and kept.wait(j.may_repeat("0.1/2", 0)).is_done


def test_a_stale_lease_may_repeat_nothing(kept: Kept) -> None:
    kept.wait(intend(kept.journal, [invoked()], entry=entry()))
    kept.claim_again()
    with pytest.raises(StaleLease):
        kept.wait(kept.journal.may_repeat("0.1/1", 0))


def test_branches_write_at_once_and_each_write_is_whole(kept: Kept) -> None:
    """Twenty writes of one claim in flight: none is lost or torn, and the numbers have no gap."""
    j, before = kept.journal, len(kept.events())

    async def all_at_once() -> list[Reply]:
        writes = [record(j, [read(i), read(-i)], usage=Usage(steps=1)) for i in range(10)]
        intents = [intend(j, [invoked(f"0.1/{i}")], entry=entry(slot=f"0.1/{i}")) for i in range(10)]
        return list(await asyncio.gather(*writes, *intents))

    replies = kept.wait(all_at_once())
    assert all(reply.is_done for reply in replies) and len({reply.seq for reply in replies}) == 20
    assert len(kept.events()) == before + 30 == j.seq
    values = [x.payload for x in kept.events() if isinstance(x, e.ValueRead)]
    assert all(a == -b for a, b in zip(values[::2], values[1::2], strict=True)), (
        "what was written together stands together"
    )
    assert kept.used().steps == 10


# --- people's requests ---


@pytest.mark.parametrize(
    ("flags", "stop"), [(("pause",), "pause"), (("cancel",), "cancel"), (("pause", "cancel"), "cancel")]
)
def test_under_a_wish_no_intent_is_written_and_no_approval_used(kept: Kept, flags: tuple[Flag, ...], stop: str) -> None:
    wait = opened(kept, spec(kept))
    kept.resolve(wait, "approved", grant="plan")
    kept.ask(*flags)
    before = kept.events()
    reply: Reply = kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=(wait.slot, "plan")))
    assert not reply.is_done and reply.stop == stop
    assert kept.events() == before and kept.facts() == []
    kept.ask()
    assert kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=(wait.slot, "plan"))).is_done


@pytest.mark.parametrize(("flags", "stop"), [((), None), (("pause",), "pause"), (("cancel",), "cancel")])
def test_facts_are_taken_whatever_people_ask_for_and_the_reply_says_it(kept: Kept, flags: Any, stop: Any) -> None:
    kept.ask(*flags)
    reply: Reply = kept.wait(record(kept.journal, [read()], entries=[entry("committed")]))
    assert reply.is_done and reply.stop == stop
    assert kept.wait(kept.journal.load()).reply.stop == stop


# --- grants ---


def test_a_grant_is_used_once(kept: Kept) -> None:
    wait = opened(kept, spec(kept))
    kept.resolve(wait, "approved", grant="plan")
    kept.wait(intend(kept.journal, [invoked("0.1/1")], entry=entry(), grant=(wait.slot, "plan")))
    before = kept.events(), kept.facts()
    with pytest.raises(ApprovalMissing):
        kept.wait(intend(kept.journal, [invoked("0.1/2")], entry=entry(slot="0.1/2"), grant=(wait.slot, "plan")))
    assert (kept.events(), kept.facts()) == before


BAD_GRANTS: dict[str, tuple[str, str | None, str | None, tuple[str, str]]] = {
    "other bytes": ("approval", "approved", "plan", ("0.1/1", "another plan")),
    "another slot": ("approval", "approved", "plan", ("0.1/2", "plan")),
    "rejected": ("approval", "rejected", None, ("0.1/1", "plan")),
    "expired undecided": ("approval", "expired", None, ("0.1/1", "plan")),
    "undecided": ("approval", None, None, ("0.1/1", "plan")),
    "withdrawn": ("approval", "withdrawn", "plan", ("0.1/1", "plan")),
    "for nothing": ("approval", "approved", None, ("0.1/1", "plan")),
    "not an approval": ("webhook", "approved", "plan", ("0.1/1", "plan")),
}


@pytest.mark.parametrize("what", BAD_GRANTS)
def test_unfit_grant_writes_nothing(kept: Kept, what: str) -> None:
    kind, resolution, grant, given = BAD_GRANTS[what]
    wait = opened(kept, spec(kept, kind))
    if resolution is not None:
        kept.resolve(wait, resolution, grant=grant)
    before = kept.events(), kept.facts()
    with pytest.raises(ApprovalMissing) as error:
        kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=given))
    assert not isinstance(error.value, ApprovalExpired)
    assert (kept.events(), kept.facts()) == before


def test_a_yes_that_lay_unused_too_long_is_told_apart(kept: Kept) -> None:
    wait = opened(kept, spec(kept))
    kept.resolve(wait, "approved", grant="plan")
    kept.outlive(wait)
    before = kept.events()
    with pytest.raises(ApprovalExpired):
        kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=(wait.slot, "plan")))
    assert kept.events() == before


def test_a_grant_stays_good_when_the_intent_that_would_use_it_can_not_be_written(kept: Kept) -> None:
    wait = opened(kept, spec(kept))
    kept.resolve(wait, "approved", grant="plan")
    kept.wait(record(kept.journal, [read(1, "0.1/7")]))
    with pytest.raises(Exception, match=r"0\.1/7|one_fact_per_slot"):
        kept.wait(intend(kept.journal, [read(2, "0.1/7")], grant=(wait.slot, "plan")))
    assert kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=(wait.slot, "plan"))).is_done


# --- further attempts at a call under a grant ---

_DID_NOT = e.ToolReconciled(slot="0.1/1", tool="order", verdict="did_not", by="user:olga")
# What is recorded of the first attempt, and whether the same grant covers a second one.
AFTER_THE_FIRST: dict[str, tuple[list[e.Event], bool]] = {
    "it was refused": ([e.ToolFailed(slot="0.1/1", tool="order", code="no", requested_hash="h")], True),
    "a person found that it did not happen": ([_DID_NOT], True),
    "nothing": ([], False),
    "it is unknown": ([e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=True)], False),
    "it was answered": ([e.ToolReturned(slot="0.1/1", tool="order", payload={"x": 1})], False),
    "it was called back": ([e.CallbackReceived(slot="0.1/1", tool="order", payload={"x": 1})], False),
    "a person found that it happened": (
        [e.ToolReconciled(slot="0.1/1", tool="order", verdict="happened", by="user:olga")],
        False,
    ),
    "a late callback contradicted the person, who says so again": (
        [_DID_NOT, e.CallbackArrivedLate(slot="0.1/1", tool="order"), replace(_DID_NOT, n=1)],
        False,
    ),
    "a late witness contradicted the person, who says so again": (
        [
            _DID_NOT,
            e.ToolAnsweredLate(slot="0.1/1", tool="order", by="worker:x", outcome="happened", contradicts="did_not"),
            replace(_DID_NOT, n=1),
        ],
        False,
    ),
    "a late witness says the same": (
        [_DID_NOT, e.ToolAnsweredLate(slot="0.1/1", tool="order", by="worker:x", outcome="refused", contradicts="")],
        True,
    ),
}


def let_through(kept: Kept, *told: e.Event) -> WaitSpec:
    """Write a call under a grant and further events about it."""
    wait = opened(kept, spec(kept))
    kept.resolve(wait, "approved", grant="plan")
    first = replace(invoked(), grant=wait.slot)
    kept.wait(intend(kept.journal, [first], entry=entry(), grant=(wait.slot, "plan")))
    if told:
        kept.wait(record(kept.journal, list(told)))
    return wait


def again(attempt: int = 1, slot: str = "0.1/1") -> e.ToolInvoked:
    return replace(invoked(slot, attempt), grant="0.1/1")


@pytest.mark.parametrize("told", AFTER_THE_FIRST)
def test_a_grant_covers_a_call_until_something_may_have_come_of_it(kept: Kept, told: str) -> None:
    answer, is_covered = AFTER_THE_FIRST[told]
    wait = let_through(kept, *answer)
    before = kept.events(), kept.facts()
    second = intend(kept.journal, [again()], entry=entry(attempt=1), grant=(wait.slot, "plan"))
    if is_covered:
        assert kept.wait(second).is_done
        return
    with pytest.raises(ApprovalMissing) as error:
        kept.wait(second)
    assert not isinstance(error.value, ApprovalExpired) and (kept.events(), kept.facts()) == before


def test_what_is_no_word_of_its_outcome_does_not_end_a_grant(kept: Kept, inspected: e.Event) -> None:
    wait = let_through(kept, _DID_NOT, inspected)
    second = intend(kept.journal, [again()], entry=entry(attempt=1), grant=(wait.slot, "plan"))
    assert kept.wait(second).is_done


def test_a_grant_covers_no_further_attempt_after_its_time(kept: Kept) -> None:
    wait = let_through(kept, _DID_NOT)
    kept.outlive(wait)
    with pytest.raises(ApprovalExpired):
        kept.wait(intend(kept.journal, [again()], entry=entry(attempt=1), grant=(wait.slot, "plan")))


def test_what_went_out_under_a_grant_goes_out_again_under_one_only(kept: Kept) -> None:
    """The worker's code may have lost its gate, but the record shows it."""
    let_through(kept, _DID_NOT)
    with pytest.raises(ApprovalMissing):
        kept.wait(intend(kept.journal, [invoked(attempt=1)], entry=entry(attempt=1)))


def test_a_grant_that_a_call_used_covers_no_other_call(kept: Kept) -> None:
    wait = let_through(kept, _DID_NOT)
    kept.wait(intend(kept.journal, [invoked("0.1/2")], entry=entry(slot="0.1/2")))
    kept.wait(record(kept.journal, [replace(_DID_NOT, slot="0.1/2")]))
    with pytest.raises(ApprovalMissing):
        kept.wait(
            intend(kept.journal, [again(1, "0.1/2")], entry=entry(slot="0.1/2", attempt=1), grant=(wait.slot, "plan"))
        )


# --- letting go ---

# how, state, requested flags → done, remaining flags
LEAVES: list[tuple[str, str, tuple[Flag, ...], bool, set[Flag]]] = [
    ("park", "waiting_human", (), True, set()),
    ("park", "waiting_human", ("pause",), False, {"pause"}),
    ("park", "waiting_human", ("cancel",), False, {"cancel"}),
    ("settle", "waiting_human", (), True, set()),
    ("settle", "waiting_human", ("pause",), True, {"pause"}),
    ("settle", "waiting_human", ("cancel",), True, {"cancel"}),
    ("pause", "paused", (), False, set()),
    ("pause", "paused", ("pause",), True, set()),
    ("pause", "paused", ("pause", "cancel"), False, {"pause", "cancel"}),
    ("release", "running", (), True, set()),
    ("release", "running", ("pause",), True, {"pause"}),
    ("release", "running", ("cancel",), True, {"cancel"}),
    ("end", "completed", (), True, set()),
    ("end", "completed", ("pause",), True, set()),
    ("end", "completed", ("cancel",), False, {"cancel"}),
    ("end", "failed", (), True, set()),
    ("end", "failed", ("cancel",), False, {"cancel"}),
    ("end", "cancelled", ("cancel",), True, set()),
    ("end", "cancelled", ("cancel", "pause"), True, set()),
]


@pytest.mark.parametrize(
    ("how", "state", "flags", "is_done", "left"), LEAVES, ids=lambda v: "+".join(v) if isinstance(v, tuple) else None
)
def test_letting_go_does_only_what_is_still_right(
    kept: Kept, how: Any, state: str, flags: tuple[Flag, ...], is_done: bool, left: set[Flag]
) -> None:
    wait = opened(kept, spec(kept))
    kept.ask(*flags)
    before = len(kept.events())
    reply: Reply = kept.wait(
        kept.journal.leave(how, [e.RunParked(state=state, waits=[])], state=state, waits=[wait.id])
    )
    assert reply.is_done is is_done and kept.flags() == left
    assert len(kept.events()) == before + is_done
    assert kept.state() == (state if is_done else "running")
    assert kept.resolution(wait) == ("withdrawn" if how == "end" and is_done else None)
    if is_done:
        with pytest.raises(StaleLease):
            kept.wait(record(kept.journal, [read()]))
    else:
        kept.wait(record(kept.journal, [read()]))


@pytest.mark.parametrize("how", ["park", "settle", "budget"])
def test_a_run_does_not_park_on_what_was_resolved_meanwhile(kept: Kept, how: Any) -> None:
    still, gone = opened(kept, spec(kept, slot="0.1/1")), opened(kept, spec(kept, slot="0.1/2"))
    kept.resolve(gone, "approved")
    reply: Reply = kept.wait(
        kept.journal.leave(
            how, [e.RunParked(state="waiting_human", waits=[])], state="waiting_human", waits=[still.id, gone.id]
        )
    )
    assert not reply.is_done and reply.stop is None and kept.state() == "running"
    assert kept.wait(
        kept.journal.leave(how, [e.RunParked(state="waiting_human", waits=[])], state="waiting_human", waits=[still.id])
    ).is_done


# --- waits ---


def test_an_intent_may_open_the_wait_for_its_answer(kept: Kept) -> None:
    wait = spec(kept, "webhook")
    kept.wait(intend(kept.journal, [invoked()], entry=entry(), wait=wait))
    assert kept.resolution(wait) is None and kept.deadline(wait) == wait.deadline


def test_the_time_that_upstream_gave_counts_while_the_wait_is_open(kept: Kept) -> None:
    wait, sooner = spec(kept, "webhook"), spec(kept, "webhook", seconds=60)
    kept.wait(intend(kept.journal, [invoked()], entry=entry(), wait=wait))
    kept.wait(record(kept.journal, [e.ToolAccepted(slot="0.1/1", tool="order")], wait=sooner))
    assert kept.deadline(wait) == sooner.deadline
    kept.resolve(wait, "received")
    kept.wait(record(kept.journal, [read()], wait=spec(kept, "webhook", seconds=1)))
    assert kept.deadline(wait) == sooner.deadline and kept.resolution(wait) == "received"


@pytest.mark.parametrize(
    "told",
    [
        e.ToolFailed(slot="0.1/1", tool="order", code="no", requested_hash="h"),
        e.ToolReconciled(slot="0.1/1", tool="order", verdict="happened", by="hook"),
    ],
    ids=["refused", "told by its hook"],
)
def test_a_call_whose_outcome_is_known_waits_for_no_callback(kept: Kept, told: e.Event) -> None:
    mine, other = spec(kept, "webhook"), spec(kept, "webhook", slot="0.1/2")
    kept.wait(intend(kept.journal, [invoked()], entry=entry(), wait=mine))
    kept.wait(intend(kept.journal, [invoked("0.1/2")], entry=entry(slot="0.1/2"), wait=other))
    kept.wait(record(kept.journal, [told]))
    assert (kept.resolution(mine), kept.resolution(other)) == ("settled", None)


def test_a_gate_opens_with_its_wait(kept: Kept) -> None:
    wait = spec(kept)
    gate = GateOpening(UUID(int=7), "legal", "approve", "May I?", "", "rule", b"{}", "plan", [], "why", "key:shop")
    reply = kept.wait(record(kept.journal, [read()], wait=wait, gate=gate))
    assert reply.is_done and kept.resolution(wait) is None


def test_the_end_withdraws_every_open_wait_and_no_other(kept: Kept) -> None:
    open_, decided = opened(kept, spec(kept, slot="0.1/1")), opened(kept, spec(kept, slot="0.1/2"))
    kept.resolve(decided, "rejected")
    kept.wait(kept.journal.leave("end", [e.RunFailed(code="x")], state="failed", error="x"))
    assert (kept.resolution(open_), kept.resolution(decided)) == ("withdrawn", "rejected")


# --- checkpoints, figures ---


def test_what_comes_back_is_the_newest_checkpoint_and_what_came_after_it(kept: Kept) -> None:
    assert kept.wait(kept.journal.load()).snapshot is None
    kept.wait(record(kept.journal, [e.VisitEntered(node="one", visit=1)], snapshot=snapshot("one", 1, {"a": 1})))
    old, new = read("old"), read("new")
    kept.wait(record(kept.journal, [old]))
    newest = snapshot("two", 2, {"a": [1, {"b": None}], "long": "x" * 5000})
    kept.wait(record(kept.journal, [e.VisitEntered(node="two", visit=2)], snapshot=newest))
    kept.wait(record(kept.journal, [new]))
    history = kept.wait(kept.journal.load())
    assert history.snapshot == newest
    assert [x.payload for x in history.tail if isinstance(x, e.ValueRead)] == ["new"]
    assert history.created.KIND == "RunCreated"


def test_a_claim_by_another_comes_after_everything_that_was_written(kept: Kept) -> None:
    kept.wait(record(kept.journal, [read("mine")]))
    other = kept.claim_again()
    history = kept.wait(other.load())
    assert [x.KIND for x in history.tail][-2:] == ["ValueRead", "RunClaimed"]
    assert history.reply.seq == other.seq == len(kept.events())


def test_figures_add_up(kept: Kept) -> None:
    kept.wait(record(kept.journal, [read()], usage=Usage(steps=1, tool_calls=1)))
    kept.wait(record(kept.journal, [read(), debited()], usage=Usage(steps=1)))
    kept.wait(record(kept.journal, [debited(1, is_estimate=True)]))
    kept.wait(record(kept.journal, [read()]))
    assert kept.used() == Usage(2, tokens_in=200, tokens_out=14, tool_calls=1, model_calls=2, usd_micro=10)


# --- budgets ---


def routed(n: int = 0, slot: str = "0.1/1", **more: Any) -> e.ModelRouted:
    given = {"model": "m", "price": 1, "tokens_in": 100, "tokens_out": 10, "usd_micro": 7} | more
    return e.ModelRouted(slot=slot, n=n, **given)


def debited(n: int = 0, slot: str = "0.1/1", **more: Any) -> e.BudgetDebited:
    given: dict[str, Any] = {"price": 1, "model_calls": 1, "tokens_in": 100, "tokens_out": 7, "usd_micro": 5}
    return e.BudgetDebited(slot=slot, n=n, model="m", **(given | more))


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("room", [-1, 0])
def test_an_intent_beyond_a_cap_is_refused_and_leaves_nothing(kept: Kept, resource: str, room: int) -> None:
    """Exactly the cap is allowed; and a fact is accepted whatever the cap."""
    is_call = resource in ("steps", "tool_calls")
    event: e.Event = invoked() if is_call else routed()
    wanted = {"tokens_in": 100, "tokens_out": 10, "usd_micro": 7}.get(resource, 1)
    used = Usage(**{resource: 3})
    kept.wait(record(kept.journal, [debited(**_only(resource, 3))], usage=used if is_call else Usage()))
    before, cap = (kept.events(), kept.used()), 3 + wanted + room
    kept.cap(**{resource: cap})
    entries = {"entry": entry()} if is_call else {}
    if room < 0:
        with pytest.raises(BudgetShort):
            kept.wait(intend(kept.journal, [event], **entries))
        assert (kept.events(), kept.used(), kept.facts()) == (*before, [])
    else:
        assert kept.wait(intend(kept.journal, [event], **entries)).is_done
    kept.cap(**{resource: 0})
    kept.wait(record(kept.journal, [debited(1)], usage=Usage(steps=1, tool_calls=1)))
    assert kept.used().model_calls == before[1].model_calls + 1


def _only(resource: str, used: int) -> dict[str, int]:
    none = {"model_calls": 0, "tokens_in": 0, "tokens_out": 0, "usd_micro": 0}
    return {name: used if name == resource else 0 for name in none}


def test_what_has_no_cap_is_refused_by_none(kept: Kept) -> None:
    kept.cap(tokens_in=10**15)
    assert kept.wait(intend(kept.journal, [routed(tokens_in=10**14, usd_micro=None, price=None)])).is_done
    kept.wait(record(kept.journal, [debited(tokens_in=10**14, usd_micro=None, price=None)]))
    assert kept.used() == Usage(model_calls=1, tokens_in=10**14, tokens_out=7)


def test_a_wish_comes_before_a_cap(kept: Kept) -> None:
    kept.cap(tool_calls=0)
    kept.ask("pause")
    reply = kept.wait(intend(kept.journal, [invoked()], entry=entry()))
    assert not reply.is_done and reply.stop == "pause"


def test_what_was_not_afforded_uses_no_approval(kept: Kept) -> None:
    gate = opened(kept, spec(kept, slot="0.1/0"))
    kept.resolve(gate, "approved", grant="plan")
    kept.cap(tool_calls=0)
    with pytest.raises(BudgetShort):
        kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=("0.1/0", "plan")))
    kept.cap(tool_calls=1)
    assert kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=("0.1/0", "plan"))).is_done


def test_a_request_is_debited_once(kept: Kept) -> None:
    """One debit per attempt: a second one is refused with its whole commit."""
    kept.wait(record(kept.journal, [debited()]))
    used = kept.used()
    with pytest.raises(Exception, match=r"unique constraint|is already recorded"):
        kept.wait(record(kept.journal, [debited(tokens_in=1), read()], usage=Usage(steps=1)))
    assert kept.used() == used


def test_what_a_run_may_use_and_has_used_comes_with_its_journal(kept: Kept) -> None:
    kept.cap(steps=3, usd_micro=9)
    kept.wait(record(kept.journal, [debited()], usage=Usage(steps=1)))
    history = kept.wait(kept.claim_again().load())
    assert (history.caps, history.used) == (Caps(steps=3, usd_micro=9), kept.used())


@pytest.mark.parametrize("flags", [(), ("pause",), ("cancel",)])
def test_run_out_of_budget_stands_still_unless_people_act(kept: Kept, flags: tuple[Flag, ...]) -> None:
    wait = opened(kept, spec(kept, "budget", slot="budget/1"))
    kept.ask(*flags)
    leaving = kept.journal.leave("budget", [e.RunPaused(by="budget")], state="paused", waits=[wait.id])
    reply: Reply = kept.wait(leaving)
    assert reply.is_done is not bool(flags) and kept.flags() == set(flags)
    assert kept.state() == ("running" if flags else "paused")


def test_connections_are_given_back(stage: Stage) -> None:
    """A refusal in the database leaves no transaction open, which would hold the run's lock."""
    kept = InPostgres(stage)
    for _ in range(20):
        with pytest.raises(ApprovalMissing):
            kept.wait(intend(kept.journal, [invoked()], entry=entry(), grant=("0.1/1", "plan")))

    def left_open() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' AND "
                "application_name LIKE %s",
                ["%stage%"],
            )
            return [query for (query,) in cursor.fetchall()]

    # The server shows this a moment after the client's answer, and lists the stage's other threads too.
    eventually(lambda: not left_open(), "the end of every transaction")


def test_an_id_of_the_other_side_that_no_index_takes_is_cut_and_stays_unique(stage: Stage, tools: Toolbox) -> None:
    runs = [stage.start(calling(tools, "order", "x" * 40_000 + end)) for end in "ab"]
    for run in runs:
        stage.settle(run)
        assert str(fresh(run).state) == "completed" and verify(run.id).problems == []
    ids = set(LedgerEntry.objects.filter(fact="committed").values_list("external_id", flat=True))
    assert len(ids) == 2 and all(len(each or "") < 500 for each in ids)
