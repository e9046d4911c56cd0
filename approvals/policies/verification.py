"""What policies said of calls, held against what the journal tells of these calls and against the policies that were in
force: no call left without the yes that was demanded, none that was forbidden, none unjudged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from approvals.rules.rows import Policy, is_sealed
from ledger import events as e
from ledger.verification.runs import SLACK, Line, ReadJournal, register
from runs.engine.tape import payload_of
from runs.models import PolicyRevision

At = tuple[str | None, int]
_LEAVES = (e.ToolInvoked, e.ToolRedispatched)
_READS = (e.ToolRead, e.ToolReadAnew, e.CachedReadTaken)


@dataclass
class _Left:
    """A call that left, and what it was judged by."""

    seq: int
    kind: str
    judged: e.PolicyApplied | None = None


def _asks(event: e.Event) -> bool:
    """Whether it puts a call to people: a question is of its slot, whichever attempt it is asked about."""
    return isinstance(event, e.ApprovalRequested)


class Policed:
    """Judgements against calls, and against the policies of then."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.left: list[_Left] = []
        self.said: list[tuple[int, e.PolicyApplied]] = []
        self.queues: dict[str, str] = {}  # of each question
        self.yes: dict[str | None, set[str]] = {}  # by slot, the queues that approved
        self.grants: dict[At, str] = {}
        self.wrong: list[str] = []
        self._last: tuple[int, e.Event] | None = None

    def see(self, line: Line) -> None:
        """Fold one event in. A judgement stands behind what came of it."""
        event = line.event
        match event:
            case e.PolicyApplied():
                self._judged(line.seq, event)
                return  # what it is about is still the event before
            case e.ToolInvoked(grant=grant):
                if grant is not None:
                    self.grants[event.slot, event.attempt] = grant
            case e.ApprovalRequested():
                self.queues[event.approval_id] = event.queue
            case e.ApprovalDecided(verdict="approved"):
                self.yes.setdefault(event.slot, set()).add(self.queues.get(event.approval_id, ""))
            case _:
                pass
        if isinstance(event, _LEAVES):
            self.left.append(_Left(line.seq, event.KIND))
        self._last = line.seq, event

    def _judged(self, seq: int, said: e.PolicyApplied) -> None:
        self.said.append((seq, said))
        what = f"event {seq}, PolicyApplied"
        of = self._last[1] if self._last is not None else None
        if of is None or of.slot != said.slot or not (of.attempt == said.attempt or _asks(of)):
            self.wrong.append(f"{what}: it stands behind nothing that came of it")
        elif isinstance(of, (*_LEAVES, *_READS)) and not getattr(of, "code", ""):
            self._let_go(what, said, of)
        elif isinstance(of, e.ApprovalRequested) and "policy" in payload_of(of) and of.queue not in said.queues:
            self.wrong.append(f"{what}: {of.queue} is asked, and it names {', '.join(said.queues) or 'nobody'}")
        if isinstance(of, _LEAVES):
            self.left[-1].judged = said

    def _let_go(self, what: str, said: e.PolicyApplied, of: e.Event) -> None:
        if said.effect == "deny":
            self.wrong.append(f"{what}: {said.policy} forbade the call, and event {of.KIND} tells that it was made")
        if said.effect == "require":
            given = self.yes.get(of.slot, set()) | self.yes.get(self.grants.get((of.slot, of.attempt)), set())
            if lacking := [queue for queue in said.queues if queue not in given]:
                self.wrong.append(f"{what}: the call was made without the yes of {', '.join(lacking)}")

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        yield from self._against_rows()
        yield from self._in_force()

    def _against_rows(self) -> Iterator[str]:
        """A judgement names a version that there is, one of our processes wrote, and that says so."""
        named = {(said.policy, said.version) for _, said in self.said if said.policy}
        rows = {(row.name, row.version): row for row in Policy.objects.filter(name__in={name for name, _ in named})}
        for seq, said in self.said:
            row = rows.get((said.policy, said.version))
            if not said.policy:
                if said.effect != "allow":
                    yield f"event {seq}, PolicyApplied: it says {said.effect} and names no policy"
            elif row is None:
                yield f"event {seq}, PolicyApplied: there is no version {said.version} of the policy {said.policy}"
            elif str(row.effect) != said.effect:
                yield f"event {seq}, PolicyApplied: {row} says {row.effect}, not {said.effect}"
            elif not row.is_genuine:
                yield f"event {seq}, PolicyApplied: {row} was not put on record by this installation, or was changed"

    def _in_force(self) -> Iterator[str]:
        """A call left by the policies in force when its intent was written."""
        if not self.left:
            return
        # What somebody added past us was never in force: no worker goes by it.
        turned = [row for row in PolicyRevision.objects.order_by("revision") if is_sealed(row)]
        times = [row.at for row in turned]
        for left in self.left:
            at = self.journal.at[left.seq - 1]
            first, last = bisect_right(times, at - SLACK) - 1, bisect_right(times, at + SLACK) - 1
            could = {(turned[i].revision, turned[i].live) if i >= 0 else (0, 0) for i in range(first, last + 1)}
            if left.judged is None and not any(live == 0 for _, live in could):
                yield f"event {left.seq}, {left.kind}: policies were in force, and none judged the call"
            if left.judged is not None and left.judged.revision not in {revision for revision, _ in could}:
                yield (
                    f"event {left.seq}, {left.kind}: it was judged by the policies of revision "
                    f"{left.judged.revision}, in force were others"
                )


def plug_in() -> None:
    """Add to the verification of runs."""
    register(Policed)
