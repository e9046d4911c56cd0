"""Check the ledger's own tables against the journal: acts, overrides and the head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ledger import events as e
from ledger.kinds import NEVER_SENT
from ledger.models import ActRecord, OverrideRecord
from ledger.verification.runs import EventLine, ReadJournal, at_most_once, compared

# The kinds of events that can be the first event of each act.
_ACTS: dict[str, tuple[type[e.Event], ...]] = {
    "pause": (e.PauseRequested, e.RunPaused),
    "resume": (e.RunResumed,),
    "cancel": (e.CancelRequested, e.RunCancelled),
    "retry": (e.RunRetried, e.WaitResolved, e.RunRequeued),
    "reconcile": (e.ToolReconciled,),
    "budget": (e.BudgetSet,),
    "models": (e.ModelsChosen,),
    "fork": (e.ForkMade,),
    "start_again": (e.ForkMade,),
    "migrate": (e.RunMigrated,),
    "inject": (e.ContextInjected,),
    "requeue": (e.RunRequeued,),
}
_BY_PEOPLE = tuple({kind for kinds in _ACTS.values() for kind in kinds})
# Prefixes of `by` if no person acted: a worker on a person's request, a hook, the clock, an outside system.
_NO_PERSON = ("operator", "budget", "hook", "worker:", "run:", "system:", "outside:")
_PERSON = ("user:", "key:", "os:")


class Overrides:
    """Check that each override event has a record with the state it acted on, and each record its event."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.acts: dict[int, e.Event] = {}
        self.wrong: list[str] = []
        self._last: EventLine | None = None

    def see(self, line: EventLine) -> None:
        """Keep the first event of each act: an act that settles several stops at once writes one event for each."""
        self._see_context(line)
        is_an_act = isinstance(line.event, _BY_PEOPLE) and _is_a_persons(line.event)
        if is_an_act and not self._goes_on(line) and not _is_of_the_start(line):
            self.acts[line.seq] = line.event
        self._last = line

    def _see_context(self, line: EventLine) -> None:
        """Check that an event of injected context names the state that the context was added to.

        The act that continues the run must follow it.
        """
        if isinstance(event := line.event, e.ContextInjected):
            if not str(event.by).startswith(_PERSON):
                self.wrong.append(
                    f"event {line.seq}, ContextInjected, was not written by a person, but by {event.by!r}"
                )
            if (event.seen, event.head) != (line.seq - 1, (self.journal.hash_at(line.seq - 1) or b"").hex()):
                self.wrong.append(f"event {line.seq}, ContextInjected, is for a state that the run was not in")
        last = self._last.event if self._last is not None else None
        if isinstance(last, e.ContextInjected):
            goes_on = isinstance(event, (e.RunResumed, e.RunRetried, e.WaitResolved)) and event.by == last.by
            if not goes_on:
                self.wrong.append(
                    f"event {line.seq - 1}, ContextInjected, is not followed by the act that continues the run"
                )

    def _goes_on(self, line: EventLine) -> bool:
        last = self._last
        return (
            last is not None
            and isinstance(line.event, e.WaitResolved)
            and isinstance(last.event, e.WaitResolved)
            and _is_a_persons(last.event)
        )

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        if self._last is not None and isinstance(self._last.event, e.ContextInjected):
            yield f"event {self._last.seq}, ContextInjected, is not followed by the act that continues the run"
        seqs = []
        for row in self.journal.rows(OverrideRecord, "id"):
            seqs.append(row.seq)
            yield from self._about(row)
        yield from at_most_once("the override record on event", seqs)
        for seq in sorted({seq - 1 for seq in self.acts} - set(seqs)):
            yield f"event {seq + 1}, {self.acts[seq + 1].KIND}, is a person's act without an override record"

    def _about(self, row: OverrideRecord) -> Iterator[str]:
        what = f"override record {row.id}"
        if row.code is None:
            yield f"{what} has no code: this installation did not write it"
        elif not row.is_authentic:
            yield f"{what} was not written with this installation's key, or was changed"
        event = self.acts.get(row.seq + 1)
        if event is None or not isinstance(event, _ACTS.get(row.action, ())):
            yield f"{what}, {row.action}, has no event after event {row.seq}"
            return
        payload = event.payload if isinstance(event.payload, dict) else {}
        yield from compared(
            what,
            row,
            {
                "by": getattr(event, "by", None),
                "justification": "" if self.journal.is_erased else payload.get("justification"),
                "chain": self.journal.hash_at(row.seq),
            },
        )
        if isinstance(event, e.ContextInjected) and not self.journal.is_erased:
            fields = sorted([*payload.get("change", ()), *payload.get("gone", ())])
            summary = {"fields": fields, "has_message": "message" in payload}
            context = row.after.get("context") if isinstance(row.after, dict) else None
            if (row.role, context) != (event.role, summary):
                yield f"{what} names different content or a different role from its event"
        if not (self.journal.is_about(row.seq + 1, row.at)):
            yield f"{what}: its time, {row.at.isoformat()}, differs from that of its event"


def _is_a_persons(event: e.Event) -> bool:
    if isinstance(event, e.WaitResolved) and event.resolution != "retried":
        return False
    return not str(getattr(event, "by", "")).startswith(_NO_PERSON)


def _is_of_the_start(line: EventLine) -> bool:
    """Return whether the event sets the initial budget: that is part of the creation, not an act."""
    return line.seq == 2 and isinstance(line.event, e.BudgetSet) and line.event.payload is None


def _on_a_case(event: e.InquiryMade | e.InquiryEnded | e.ApprovalDelegated | e.DelegationEnded) -> tuple[str, str]:
    """Return the name and text of an act on a case, for acts that are not decisions."""
    payload = event.payload if isinstance(event.payload, dict) else {}
    match event:
        case e.InquiryMade():
            return "inquiry", payload.get("question", "")
        case e.InquiryEnded(outcome=outcome):
            return "inquiry_answer" if outcome == "answered" else "inquiry_withdraw", payload.get("answer", "")
        case e.ApprovalDelegated():
            return "delegate", payload.get("justification", "")
        case _:
            return "delegate_end", payload.get("justification", "")


_SAYINGS = {
    e.OutcomeProposed: "outcome_propose",
    e.OutcomeWithdrawn: "outcome_withdraw",
    e.UpstreamAsked: "upstream_ask",
}


class _Act(NamedTuple):
    seq: int
    columns: dict[str, Any]


class Acts:
    """Check that each other act has a record with the state it acted on, and each record its event."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.acts: dict[tuple[str, int], _Act] = {}

    def see(self, line: EventLine) -> None:
        """Keep the expected content of each act's record, by the act's name and last event."""
        event, columns = line.event, dict[str, Any]()
        match event:
            case e.RunCreated(by=by):
                # The record of a start is written after this event, so it names the event.
                name, seq, columns = "start", line.seq, {"by": by, "subject": f"{event.agent}@{event.version}"}
            case e.BudgetSet() if _is_of_the_start(line) and ("start", 1) in self.acts:
                self.acts["start", 2] = self.acts.pop(("start", 1))  # both belong to one act
                return
            case e.StartPlanned() | e.RunForked() | e.VersionAssigned() | e.AttributesSet(slot=None) if (
                "start",
                line.seq - 1,
            ) in self.acts:
                self.acts["start", line.seq] = self.acts.pop(
                    ("start", line.seq - 1)
                )  # these events belong to the same act
                return
            case e.SignalReceived(by=by):
                name, seq, columns = "signal", line.seq - 1, {"by": by, "subject": f"{event.name} {event.n}"}
            case e.MessageReceived(by=by):
                name, seq, columns = "message", line.seq - 1, {"by": by, "subject": f"{event.name} {event.n}"}
            case e.InputAnswered(by=by):
                justification = event.payload.get("justification", "") if isinstance(event.payload, dict) else ""
                columns = {"by": by, "role": event.role, "justification": justification}
                name, seq = "answer", line.seq - 1
            case e.InquiryMade() | e.InquiryEnded() | e.ApprovalDelegated() | e.DelegationEnded():
                name, why = _on_a_case(event)
                by, seq, columns = event.by, line.seq - 1, {"by": event.by, "role": event.role, "justification": why}
            case e.OutcomeProposed() | e.OutcomeWithdrawn() | e.UpstreamAsked():
                name, by, seq = _SAYINGS[type(event)], event.by, line.seq - 1
                summary = event.payload if isinstance(event.payload, dict) else {}
                columns = {"by": by, "role": event.role, "justification": summary.get("justification", "")}
                columns |= {"person": event.person} if isinstance(event, e.OutcomeProposed) else {}
            case _:
                return
        if by.startswith(_PERSON):
            self.acts[name, seq] = _Act(line.seq, columns)

    def problems(self) -> Iterator[str]:
        missing, keys = dict(self.acts), []
        for row in self.journal.acts:
            keys.append((row.action, row.seq))
            yield from self._about(row)
            missing.pop((row.action, row.seq or 0), None)
        yield from at_most_once("the record of act", keys)
        for (name, _), act in missing.items():
            yield f"event {act.seq} is a person's {name} without a record of the act"

    def _about(self, row: ActRecord) -> Iterator[str]:
        what = f"act record {row.id}, {row.action},"
        if row.code is None:
            yield f"{what} has no code: this installation did not write it"
        elif not row.is_authentic:
            yield f"{what} was not written with this installation's key, or was changed"
        if (row.n, row.prev_hash, row.hash) != (None, None, None):
            yield f"{what} is listed among the acts that belong to no run"
        act = self.acts.get((row.action, row.seq or 0))
        if act is None:
            if row.action != "start" or not self.journal.is_start_unreadable:
                yield f"{what} has no event"
            return
        columns = act.columns | {"chain": self.journal.hash_at(row.seq or 0)}
        if self.journal.is_erased:
            columns.pop("subject", None)  # it was encrypted
        yield from compared(what, row, columns)
        if not self.journal.is_about(act.seq, row.at):
            yield f"{what} has a time, {row.at.isoformat()}, that differs from that of event {act.seq}"


CAPPED = ("steps", "tokens_in", "tokens_out", "usd_micro", "tool_calls", "model_calls")


class HeadCheck:
    """Check the head's columns other than seq and hash: holder, people's requests, usage."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.epoch = self.claimed_seq = self.deaths = 0
        self.is_held = self.is_pause = self.is_cancel = False
        self.tokens_in = self.tokens_out = self.model_calls = self.tool_calls = self.perhaps = 0
        self.usd_micro = self.unpriced = self.turns = 0
        self.routed: set[tuple[str | None, int]] = set()  # requests whose debits are separate events
        self.caps: dict[str, int] = {}

    def see(self, line: EventLine) -> None:
        """Update the expected head with one event."""
        match line.event:
            case e.RunClaimed(epoch=epoch):
                self.epoch, self.claimed_seq, self.is_held = epoch, line.seq, True
            case e.RunReleased():
                self.is_held = False
            case e.RunParked():
                self._rest()
            case e.WorkerLost(deaths=deaths):
                self.is_held, self.deaths = False, deaths
            case e.RunRetried() | e.OperatorNeeded(reason="engine_failed") | e.WaitResolved(resolution="retried"):
                self.deaths = 0
            case e.PauseRequested():
                self.is_pause = True
            case e.BudgetExceeded(resource="time") if self.is_held:
                self.is_pause = True  # the run's worker stops at the next step
            case e.RunPaused():
                self.is_pause = False
                self._rest()
            case e.RunResumed():
                self.is_pause = False
            case e.CancelRequested():
                self.is_cancel, self.is_pause = True, False
            case e.UndoBegun():
                self.is_cancel = False  # from here on, the cancel request has been granted
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                self.is_pause = self.is_cancel = False
                self._rest()
                self.deaths = 0 if isinstance(line.event, e.RunCancelled) else self.deaths
            case _:
                self._count(line.event)

    def _rest(self) -> None:
        """Mark the run as not held. If a worker held it, reset the count of its workers' deaths."""
        self.is_held, self.deaths = False, 0 if self.is_held else self.deaths

    def _count(self, event: e.Event) -> None:
        match event:
            case e.ChildEnded():
                self._count_child(event)
            case e.ModelRouted():
                self.routed.add((event.slot, event.attempt))
            case e.BudgetSet():
                self.caps = event.caps
            case e.BudgetDebited():
                self.tokens_in, self.tokens_out = self.tokens_in + event.tokens_in, self.tokens_out + event.tokens_out
                self.model_calls += event.model_calls
                self.usd_micro += event.usd_micro or 0
                self.unpriced += event.model_calls if event.usd_micro is None else 0
            case e.ModelResponded() | e.ModelFailed():
                self.turns += 1
                self._count_undebited(event)
            case (
                e.ToolRead()
                | e.CachedReadTaken()
                | e.ToolReadAnew()
                | e.ToolReturned()
                | e.ToolAccepted()
                | e.ToolFailed()
            ):
                self.tool_calls += 1
            case e.ToolReconciled(by="hook"):
                self.perhaps += 1  # counts as a step, unless it settles a cancelled run
            case _:
                pass

    def _count_child(self, event: e.ChildEnded) -> None:
        """Add a child's whole usage, since the parent is debited with it."""
        self.tokens_in, self.tokens_out = self.tokens_in + event.tokens_in, self.tokens_out + event.tokens_out
        self.model_calls, self.tool_calls = self.model_calls + event.model_calls, self.tool_calls + event.tool_calls
        self.usd_micro, self.unpriced = self.usd_micro + event.usd_micro, self.unpriced + event.unpriced_calls
        self.turns += event.steps - event.tool_calls  # the steps are turns and calls

    def _count_undebited(self, event: e.ModelResponded | e.ModelFailed) -> None:
        """Count a turn that is older than debit events: its own event has the tokens, and the cost is unknown."""
        was_not_sent = isinstance(event, e.ModelFailed) and event.code in NEVER_SENT
        if was_not_sent or (event.slot, event.attempt) in self.routed:
            return
        self.model_calls, self.unpriced = self.model_calls + 1, self.unpriced + 1
        if isinstance(event, e.ModelResponded):
            self.tokens_in, self.tokens_out = self.tokens_in + event.tokens_in, self.tokens_out + event.tokens_out

    def problems(self) -> Iterator[str]:
        head = self.journal.head
        if head is None:
            return
        calls = set(range(self.tool_calls, self.tool_calls + self.perhaps + 1))
        yield from compared(
            "the head",
            head,
            {
                "epoch": self.epoch,
                "claimed_seq": self.claimed_seq,
                "is_pause_requested": self.is_pause,
                "is_cancel_requested": self.is_cancel,
                "tokens_in": self.tokens_in,
                "tokens_out": self.tokens_out,
                "model_calls": self.model_calls,
                "tool_calls": calls,
                "steps": {self.turns + head.tool_calls},
                "deaths": self.deaths,
                "usd_micro": self.usd_micro,
                "unpriced_calls": self.unpriced,
            }
            | {f"cap_{name}": self.caps.get(name) for name in CAPPED},
        )
        if self.is_held != (head.lease is not None):
            yield f"the head says that {'a worker' if head.lease else 'nobody'} holds it; the journal says otherwise"
