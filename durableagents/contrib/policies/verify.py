"""Verifies policy decisions against the journal and the policies in force at the time.

It reports calls that were sent without a required approval, against a prohibition, or without a recorded judgement."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from approvals.models import Approval
from durableagents.contrib.policies.models import Policy
from ledger import events as e
from ledger.verification.registers import Listed
from ledger.verification.runs import SLACK, EventLine, ReadJournal
from runs.engine.errors import DefinitionError
from runs.engine.gating.proof import proof_in
from runs.engine.gating.stages import has_proof
from runs.engine.tape import payload_of
from runs.models import PolicyRevision

At = tuple[str | None, int]
Question = e.ApprovalRequested
_LEAVES = (e.ToolInvoked, e.ToolRedispatched)
_READS = (e.ToolRead, e.ToolReadAnew, e.CachedReadTaken)


@dataclass
class _SentCall:
    """A sent call and the event that records which policies applied."""

    seq: int
    kind: str
    judged: e.PolicyApplied | None = None


class PolicyCheck:
    """Checks the judgements of a run against its calls and the policies."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.left: list[_SentCall] = []
        self.said: list[tuple[int, e.PolicyApplied]] = []
        self.asked: dict[str, Question] = {}
        self.decisions: list[e.ApprovalDecided] = []
        self.votes: list[e.ApprovalVoted] = []
        self.yes: dict[str | None, dict[str, Question]] = {}  # by slot: the last approved question of each queue
        self.grants: dict[At, str] = {}
        # gated calls, with the judgement and the approved questions that allowed them
        self.used: list[tuple[str, e.PolicyApplied, dict[str, Question]]] = []
        self.wrong: list[str] = []
        self._last: tuple[int, e.Event] | None = None

    def see(self, line: EventLine) -> None:
        """Apply one event. A judgement is recorded after the event that it explains."""
        event = line.event
        match event:
            case e.PolicyApplied():
                self._judged(line.seq, event)
                return  # this event refers to the previous one, which therefore stays in `_last`
            case e.ToolInvoked(grant=grant):
                if grant is not None:
                    self.grants[event.slot, event.attempt] = grant
            case e.ApprovalRequested():
                self.asked[event.approval_id] = event
            case e.ApprovalVoted():
                self.votes.append(event)
            case e.ApprovalDecided():
                self.decisions.append(event)
                if event.verdict == "approved" and (question := self.asked.get(event.approval_id)) is not None:
                    self.yes.setdefault(event.slot, {})[question.queue] = question
            case _:
                pass
        if isinstance(event, _LEAVES):
            self.left.append(_SentCall(line.seq, event.KIND))
        self._last = line.seq, event

    def _judged(self, seq: int, applied: e.PolicyApplied) -> None:
        self.said.append((seq, applied))
        what = f"event {seq}, PolicyApplied"
        of = self._last[1] if self._last is not None else None
        if (
            of is None
            or of.slot != applied.slot
            or not (of.attempt == applied.attempt or isinstance(of, e.ApprovalRequested))
        ):
            self.wrong.append(f"{what}: no event results from it")
        elif isinstance(of, (*_LEAVES, *_READS)) and not getattr(of, "code", ""):
            self._let_go(what, applied, of)
        elif isinstance(of, e.ApprovalRequested) and "policy" in payload_of(of) and of.queue not in applied.queues:
            self.wrong.append(
                f"{what}: {of.queue} is asked, but the policy names {', '.join(applied.queues) or 'nobody'}"
            )
        if isinstance(of, _LEAVES):
            self.left[-1].judged = applied

    def _let_go(self, what: str, applied: e.PolicyApplied, of: e.Event) -> None:
        if applied.effect == "deny":
            self.wrong.append(f"{what}: {applied.policy} denied the call, but event {of.KIND} shows that it was made")
        if applied.effect == "require":
            given = self.yes.get(self.grants.get((of.slot, of.attempt)), {}) | self.yes.get(of.slot, {})
            self.used.append((what, applied, given))
            if lacking := [queue for queue in applied.queues if queue not in given]:
                self.wrong.append(f"{what}: the call was made without an approval by {', '.join(lacking)}")

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        rows = self._rows()
        yield from self._against_rows(rows)
        yield from self._shown(rows)
        yield from self._in_force()

    def _rows(self) -> dict[tuple[str, int], Policy]:
        named = {applied.policy for _, applied in self.said if applied.policy}
        return {(row.name, row.version): row for row in Policy.objects.filter(name__in=named)}

    def _against_rows(self, rows: dict[tuple[str, int], Policy]) -> Iterator[str]:
        """Check that each judgement names an existing, authentic version with the same effect."""
        for seq, applied in self.said:
            row = rows.get((applied.policy, applied.version))
            if not applied.policy:
                if applied.effect != "allow":
                    yield f"event {seq}, PolicyApplied: it has effect {applied.effect} but names no policy"
            elif row is None:
                yield f"event {seq}, PolicyApplied: policy {applied.policy} has no version {applied.version}"
            elif str(row.effect) != applied.effect:
                yield f"event {seq}, PolicyApplied: {row} says {row.effect}, not {applied.effect}"
            elif not row.is_authentic:
                yield f"event {seq}, PolicyApplied: {row} was not written by this installation, or was changed"

    def _shown(self, rows: dict[tuple[str, int], Policy]) -> Iterator[str]:
        """Check that the approvals used for calls have the proof that the named policy requires."""
        for what, applied, given in self.used:
            row = rows.get((applied.policy, applied.version))
            question = None if row is None or row.proof is None else given.get(row.queue)
            if row is None or question is None:
                continue
            try:
                is_proved = has_proof(_with_plan(question), self.decisions, self.votes, proof_in(row.proof))
            except DefinitionError as unread:
                yield f"{what}: {row}: {unread}"
                continue
            if not is_proved:
                yield f"{what}: the call was made with an approval by {row.queue} without the proof that {row} requires"

    def _in_force(self) -> Iterator[str]:
        """Check that each call was sent under the policies that were in force at its intent."""
        if not self.left:
            return
        # A forged revision is ignored, because no worker uses it.
        turned = [row for row in PolicyRevision.objects.order_by("revision") if row.is_authentic]
        times = [row.at for row in turned]
        for left in self.left:
            at = self.journal.at[left.seq - 1]
            first, last = bisect_right(times, at - SLACK) - 1, bisect_right(times, at + SLACK) - 1
            could = {(turned[i].revision, turned[i].live) if i >= 0 else (0, 0) for i in range(first, last + 1)}
            if left.judged is None and not any(live == 0 for _, live in could):
                yield f"event {left.seq}, {left.kind}: policies were in force, but none was checked"
            if left.judged is not None and left.judged.revision not in {revision for revision, _ in could}:
                yield (
                    f"event {left.seq}, {left.kind}: it was checked against the policies of revision "
                    f"{left.judged.revision}, which was not in force"
                )


def _with_plan(question: Question) -> Question:
    """Return the question with its plan; the event has only the plan's hash. Raises DefinitionError."""
    row = Approval.objects.filter(pk=question.approval_id).first()
    plan = None if row is None else row.planned()
    if plan is None or "tool" not in plan:
        raise DefinitionError("the approved plan can't be read")
    return replace(question, payload=plan)


def every_revision() -> Listed | None:
    """Check all policy revisions; None if there are none."""
    rows = list(PolicyRevision.objects.order_by("revision"))
    found = [
        f"revision {row.revision} of the policies was not written with this installation's key"
        for row in rows
        if not row.is_authentic
    ]
    return Listed("policy revisions", len(rows), "", found) if rows else None
