"""Gates: what was asked, what was decided and by whom, held against the journal. See ledger/verification/runs.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from approvals.cases.verified import amendment_problems, as_decision
from approvals.models import Approval, Decision
from approvals.policy import VERDICTS
from approvals.services import GRANT_LIVES
from ledger import events as e
from ledger.codes import row_code
from ledger.keys import code_key
from ledger.verification.runs import SLACK, Line, ReadJournal, at_most_once, compared, register, started_by
from runs.engine.tape import payload_of
from runs.journal.digests import hasher

# What a plan binds and the row repeats.
_VERDICTS = VERDICTS | {"amend": "amended"}
_PLANNED = ("queue", "rule", "tool", "title", "effect", "evidence")


class Gates:
    """Approvals and decisions against events, both ways."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.created_by = ""
        self.starter: int | None = None
        self.requested: dict[str, tuple[int, e.ApprovalRequested]] = {}
        self.coded: set[int] = set()
        self.decided: dict[str, tuple[int, e.ApprovalDecided, bool]] = {}
        self.amended: dict[str, e.PlanAmended] = {}

    def see(self, line: Line) -> None:
        """Keep questions without their plans, and answers."""
        match line.event:
            case e.RunCreated(by=by):
                self.created_by = by
            case e.ApprovalRequested() as request:
                self.coded |= {line.seq} if line.is_coded else set()
                slim = e.ApprovalRequested(slot=request.slot, attempt=request.attempt, **request.clear())
                self.requested[request.approval_id] = (line.seq, slim)
            case e.ApprovalDecided() as decided:
                self.decided[decided.approval_id] = (line.seq, decided, line.is_coded)
            case e.PlanAmended() as amended:
                self.decided[amended.approval_id] = (line.seq, as_decision(amended), line.is_coded)
                self.amended[amended.approval_id] = amended
            case _:
                pass

    def problems(self) -> Iterator[str]:
        missing, self.starter = dict(self.requested), started_by(self.journal.run_id)
        rows = (
            Approval.objects.filter(run_id=self.journal.run_id)
            .select_related("wait", "previous")
            .order_by("opened_at", "id")
        )
        for row in rows.iterator(chunk_size=20):
            request = missing.pop(str(row.id), None)
            if request is None:
                yield f"approval {row.id} was asked for by no event"
                continue
            yield from self._about(row, *request)
        for id in missing:
            yield f"approval {id} has no row"
        yield from self._decisions()

    def _about(self, row: Approval, seq: int, request: e.ApprovalRequested) -> Iterator[str]:
        what, plan = f"approval {row.id}", _plan(row)
        yield from compared(what, row, {
            "plan_hash": request.plan_hash, "queue": request.queue, "tool": request.tool, "rule": request.rule,
            "requested_by": self.created_by, "deadline": datetime.fromisoformat(request.deadline),
            "state": self._states(row), "revision": row.previous.revision + 1 if row.previous else 1,
            "requester": self._requesters(seq),
        })  # fmt: skip
        if row.previous_id is not None and not _is_revised_by(row.previous, row):
            yield f"{what}: it is no revision of approval {row.previous_id}"
        if plan is None or hasher()(plan) != request.plan_hash:
            yield f"{what}: its plan is not the one that was hashed"
        elif wrong := [name for name in _PLANNED if plan.get(name) != getattr(row, name)]:
            yield f"{what}: {', '.join(wrong)} are not what the plan says"
        if (row.wait.run_id, row.wait.slot, row.wait.kind, row.wait.n) != (
            self.journal.run_id,
            request.slot,
            "approval",
            request.n,
        ):
            yield f"{what}: its wait is another one's"
        if not self.journal.is_about(seq, row.opened_at):
            yield f"{what}: it was not opened when its event was written"
        yield from self._grant(what, row)
        yield from amendment_problems(what, row, plan, self.amended.get(str(row.previous_id)))

    def _requesters(self, seq: int) -> set[int | None]:
        """The account that started the run; none, too, where the question is from before accounts were noted."""
        is_old = seq not in self.coded and seq <= self.journal.coded_after
        return {self.starter, None} if is_old else {self.starter}

    def _states(self, row: Approval) -> set[str]:
        """What the journal makes of it; an end of the run that came before an answer withdraws it without an event."""
        if str(row.id) in self.decided:
            return {self.decided[str(row.id)][1].verdict}
        return {"withdrawn"} if row.wait.resolution == "withdrawn" else {"open"}

    def _grant(self, what: str, row: Approval) -> Iterator[str]:
        seq, decided, _ = self.decided.get(str(row.id), (0, None, False))
        is_yes = decided is not None and decided.verdict == "approved"
        wait, at = row.wait, row.decided_at
        if not (self.journal.is_about(seq, at) if decided else _is_withdrawn_with(wait.resolved_at, at, row.state)):
            yield f"{what}: the time of its decision is not the journal's"
        if decided is not None and (decided.plan_hash, decided.slot) != (row.plan_hash, wait.slot):
            yield f"{what}: its decision is about another plan"
        if wait.grant_hash != (row.plan_hash if is_yes else None):
            yield f"{what}: its wait grants {wait.grant_hash}, the journal {'this plan' if is_yes else 'nothing'}"
        lives = wait.grant_expires_at and wait.resolved_at and wait.grant_expires_at - wait.resolved_at
        if (lives is not None) != is_yes or (lives and abs(lives - GRANT_LIVES) > SLACK):
            yield f"{what}: its grant does not end when it should"

    def _decisions(self) -> Iterator[str]:
        """A person's decision has its row; a deadline's has none."""
        missing = {id: decided for id, decided in self.decided.items() if decided[1].verdict != "expired"}
        rows = list(Decision.objects.filter(approval__run_id=self.journal.run_id).order_by("id"))
        yield from at_most_once("the decision on approval", [str(row.approval_id) for row in rows])
        for row in rows:
            what, decided = f"decision {row.id}", self.decided.get(str(row.approval_id))
            if decided is None:
                yield f"{what} has no event"
                continue
            missing.pop(str(row.approval_id), None)
            seq, event, is_coded = decided
            right = {
                "by": event.by,
                "role": event.role,
                "plan_hash": event.plan_hash,
                "justification": payload_of(event).get("justification"),
                "standing": payload_of(event).get("standing"),
            }
            is_old = not is_coded and seq <= self.journal.coded_after
            if not (is_old and row.seq is None and row.chain is None):
                right |= {"seq": seq - 1, "chain": self.journal.hash_at(seq - 1)}
            yield from compared(what, row, right)
            if _VERDICTS.get(row.verdict) != event.verdict or not self.journal.is_about(seq, row.at):
                yield f"{what}: verdict or time are not those of its event"
            if row.code is None:
                if not is_old:
                    yield f"{what} has no code: none of our processes wrote it"
            elif bytes(row.code) != row_code(code_key(), "decision", row.coded()):
                yield f"{what} was not written with this installation's key, or was changed"
        for id in missing:
            yield f"the decision on approval {id} has no row"


def _is_revised_by(previous: Approval | None, row: Approval) -> bool:
    """Whether a question follows one that was rejected, or amended, of the same run about the same thing to the same
    people."""
    if previous is None or previous.state not in ("rejected", "amended"):
        return False
    of = (previous.run_id, previous.tool, previous.queue)
    return of == (row.run_id, row.tool, row.queue) and previous.opened_at < row.opened_at


def _plan(row: Approval) -> Any:
    try:
        plan = json.loads(bytes(row.plan))
    except ValueError:
        return None
    return plan if isinstance(plan, dict) else None


def plug_in() -> None:
    """Add to the verification of runs."""
    register(Gates, approvals_approval="run_id")


def _is_withdrawn_with(resolved_at: datetime | None, at: datetime | None, state: str) -> bool:
    """What the end of a run withdraws has no event of its own: its wait was withdrawn in the same transaction."""
    if state == "open":
        return at is None
    return at is not None and resolved_at is not None and abs(at - resolved_at) <= SLACK
