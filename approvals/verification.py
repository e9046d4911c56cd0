"""Verify gates, decisions and votes against the journal. See ledger/verification/runs.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from approvals.cases.talks import Talks
from approvals.cases.verified import amendment_problems, as_decision
from approvals.deadlines import deadlines
from approvals.models import Approval, Decision, Seat
from approvals.policy import VERDICTS
from approvals.queue_models import Deputy, Queue
from approvals.queues.acts import snapshot
from approvals.sameness import amount_of, call_of, same_of
from approvals.services import GRANT_LIVES
from ledger import events as e
from ledger.models import ActRecord
from ledger.verification.accounts import rights_problems
from ledger.verification.runs import SLACK, EventLine, ReadJournal, at_most_once, compared
from runs import features
from runs.engine.canonical import as_hashed
from runs.engine.gating.documents import DOCUMENTS
from runs.engine.gating.fields import sameness_of
from runs.engine.gating.stages import FAIL, is_staged, lacking
from runs.engine.tape import payload_of
from runs.journal.digests import hasher

# Verdicts by the names that events use.
_VERDICTS = VERDICTS | {"amend": "amended"}
# How a decision made by a standing approval was authenticated, as events name it.
BY_STANDING_APPROVAL = "standing_grant"
_QUEUE_ACTS = ("queue", "queue_change", "queue_close", "queue_open", "queue_remove")
_PLANNED = ("queue", "rule", "tool", "title", "effect", "evidence")


class Gates:
    """Check approvals and decisions against events, in both directions."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.created_by = ""
        self.starter: int | None = None
        self.requested: dict[str, tuple[int, e.ApprovalRequested]] = {}
        self.decided: dict[str, tuple[int, e.ApprovalDecided]] = {}
        self.votes: dict[tuple[str, int | None], tuple[int, e.ApprovalVoted]] = {}
        self.times, self.talks = deadlines().checks(journal), Talks(journal)
        self.amended: dict[str, e.PlanAmended] = {}
        self.answered: dict[str, e.ApprovalRequested] = {}  # by slot, the last question answered there
        self.misused: list[str] = []

    def see(self, line: EventLine) -> None:
        """Collect the questions (without their plans) and the answers."""
        self.times.see(line)
        self.talks.see(line)
        match line.event:
            case e.RunCreated(by=by):
                self.created_by = by
            case e.ApprovalRequested() as request:
                slim = e.ApprovalRequested(slot=request.slot, attempt=request.attempt, **request.clear())
                self.requested[request.approval_id] = (line.seq, slim)
            case e.ApprovalVoted() as vote:
                self.votes[vote.approval_id, vote.person] = (line.seq, vote)
            case e.ApprovalDecided() as decided:
                self.decided[decided.approval_id] = (line.seq, decided)
                if decided.approval_id in self.requested:
                    self.answered[decided.slot or ""] = self.requested[decided.approval_id][1]
            case e.ToolInvoked(grant=str(grant)) as invoked:
                approval_id = self.answered.get(grant)
                if approval_id is not None and approval_id.requested_hash != invoked.requested_hash:
                    self.misused.append(f"event {line.seq}: the approval at slot {grant} is for another call")
            case e.PlanAmended() as amended:
                self.decided[amended.approval_id] = (line.seq, as_decision(amended))
                self.amended[amended.approval_id] = amended
            case _:
                pass

    def problems(self) -> Iterator[str]:
        missing, self.starter = dict(self.requested), self.journal.started_by
        plans: dict[str, Any] = {}
        for row in self.journal.rows(Approval, "opened_at", "id", related=["wait", "previous"], batch=20):
            plan = row.planned()
            if row.case_id is not None or "proof" in (plan or {}):
                plans[str(row.id)] = plan
            request = missing.pop(str(row.id), None)
            if request is None:
                yield f"approval {row.id} has no event that requested it"
                continue
            yield from self._about(row, *request)
        for id in missing:
            yield f"approval {id} has no row"
        yield from self.misused
        yield from self._decisions()
        yield from self.times.escalations()
        yield from self.talks.problems()
        yield from self._seats()
        yield from self._stages(plans)

    def _about(self, row: Approval, seq: int, request: e.ApprovalRequested) -> Iterator[str]:
        what, plan = f"approval {row.id}", row.planned()
        yield from compared(
            what,
            row,
            {
                "plan_hash": request.plan_hash,
                "queue": request.queue,
                "tool": request.tool,
                "rule": request.rule,
                "requested_by": row.requested_by if self.journal.is_start_unreadable else self.created_by,
                "deadline": self.times.deadline(request, row),
                "state": self._states(row),
                "revision": row.previous.revision + 1 if row.previous else 1,
                "requester": self.starter,
                "case_id": _case(row, plan),
                "same": {same_of(row.plan), sameness_of(row.plan), None},
                "call": {call_of(row.plan), None},
                "amount": {amount_of(row.plan), None},
            },
        )
        if row.previous_id is not None and not _is_revised_by(row.previous, row):
            yield f"{what}: it is not a revision of approval {row.previous_id}"
        if plan is None or hasher()(plan) != request.plan_hash:
            yield f"{what}: its plan does not match its hash"
        elif wrong := [name for name in _PLANNED if plan.get(name) != as_hashed(getattr(row, name))]:
            yield f"{what}: {', '.join(wrong)} differ from the plan"
        if row.documents != (plan.get(DOCUMENTS, []) if isinstance(plan, dict) else []):
            yield f"{what}: documents differ from the plan"
        if (row.wait.run_id, row.wait.slot, row.wait.kind, row.wait.n) != (
            self.journal.run_id,
            request.slot,
            "approval",
            request.n,
        ):
            yield f"{what}: its wait belongs to another approval"
        if not self.journal.is_about(seq, row.opened_at):
            yield f"{what}: it was not opened at the time of its event"
        yield from self._grant(what, row)
        yield from self.times.about(what, row)
        yield from amendment_problems(what, row, plan, self.amended.get(str(row.previous_id)))

    def _states(self, row: Approval) -> set[str]:
        """Return the states that the journal allows. The end of a run withdraws its questions without an event."""
        if str(row.id) in self.decided:
            return {self.decided[str(row.id)][1].verdict}
        return {"withdrawn"} if row.wait.resolution == "withdrawn" else {"open"}

    def _grant(self, what: str, row: Approval) -> Iterator[str]:
        seq, decided = self.decided.get(str(row.id), (0, None))
        is_yes = decided is not None and decided.verdict == "approved"
        wait, at = row.wait, row.decided_at
        if not (self.journal.is_about(seq, at) if decided else _is_withdrawn_with(wait.resolved_at, at, row.state)):
            yield f"{what}: the time of its decision differs from the journal's"
        if decided is not None and (decided.plan_hash, decided.slot) != (row.plan_hash, wait.slot):
            yield f"{what}: its decision is for another plan"
        if wait.grant_hash != (row.plan_hash if is_yes else None):
            yield f"{what}: its wait grants {wait.grant_hash}, but the journal {'this plan' if is_yes else 'nothing'}"
        ends = wait.grant_expires_at if wait.resolved_at is not None else None
        if (ends is not None) != is_yes or (ends and wait.resolved_at and not self._is_in_time(row, ends)):
            yield f"{what}: its approval ends at the wrong time"

    def _is_in_time(self, row: Approval, ends: datetime) -> bool:
        right = (row.wait.resolved_at or ends) + GRANT_LIVES
        return abs(ends - min(right, self._revoked.get(row.pk, right))) <= SLACK

    @cached_property
    def _revoked(self) -> dict[UUID, datetime]:
        """Return the approvals that ended early because their basis was revoked, with the time."""
        found = (each(self.journal.run_id) for each in features.parts_of_all(lambda each: each.revoked_approvals))
        return {approval_id: at for ends in found for approval_id, at in ends.items()}

    @cached_property
    def decisions(self) -> list[Decision]:
        """Return the decisions on this run's questions."""
        if Approval._meta.db_table not in self.journal.present:
            return []
        rows = Decision.objects.filter(approval__run_id=self.journal.run_id)
        return list(rows.select_related("approval").order_by("id"))

    def _decisions(self) -> Iterator[str]:
        """Check that each decision and vote in the journal has its row. Deadlines have no row."""
        missing = {id for id, decided in self.decided.items() if decided[1].verdict != "expired"}
        unvoted = set(self.votes)
        rows = self.decisions
        closing = [str(row.approval_id) for row in rows if row.closes]
        yield from at_most_once("the decision on approval", closing)
        yield from at_most_once("a vote on approval", [f"{x.approval_id} of {x.person}" for x in rows if not x.closes])
        for row in rows:
            id = str(row.approval_id)
            decided, vote = self.decided.get(id) if row.closes else None, self.votes.get((id, row.person))
            if decided is None and (row.closes or vote is None):
                yield f"decision {row.id} has no event"
                continue
            missing -= {id} if row.closes else set()
            unvoted.discard((id, row.person))
            yield from self._decision(row, [x for x in (vote, decided) if x is not None])
        for id in missing:
            yield f"the decision on approval {id} has no row"
        for id, person in unvoted:
            yield f"the vote of {self.votes[id, person][1].by} on approval {id} has no row"

    def _decision(self, row: Decision, recorded: list[RecordedVerdict]) -> Iterator[str]:
        """Check one row against its events: the vote, if any, and the closing.

        The first event gives the run's state.
        """
        what = f"decision {row.id}"
        for place, (seq, event) in enumerate(recorded):
            payload = payload_of(event)
            right: dict[str, Any] = {
                "by": event.by,
                "role": event.role,
                "plan_hash": event.plan_hash,
                "justification": payload.get("justification"),
                "standing": payload.get("standing"),
                "proof": payload.get("proof"),
            }
            if place == 0:
                right |= {"seq": seq - 1, "chain": self.journal.hash_at(seq - 1)}
            yield from compared(what, row, right)
            yield from self.times.where(what, str(row.approval_id), row.standing)
            yield from self.talks.place_of(what, row, seq)
            verdict = row.verdict if isinstance(event, e.ApprovalVoted) else _VERDICTS.get(row.verdict)
            then = FAIL if row.verdict == FAIL else None
            if verdict != event.verdict or payload.get("then") != then or not self.journal.is_about(seq, row.at):
                yield f"{what}: its verdict or time differs from its event's"
        yield from _rights(what, row)
        if row.code is None:
            yield f"{what} has no code: this installation did not write it"
        elif not row.is_authentic:
            yield f"{what} was not written with this installation's key, or was changed"

    def _seats(self) -> Iterator[str]:
        """Check that the seats (the rows of who has voted in a case) match the decisions; older decisions have none."""
        found: dict[int, set[tuple[UUID, int]]] = {}
        for seat in Seat.objects.filter(decision__in=self.decisions) if self.decisions else ():
            found.setdefault(seat.decision_id, set()).add((seat.case_id, seat.person))
        for row in self.decisions:
            deputy_of = row.standing.get("deputy_of") if isinstance(row.standing, dict) else None
            whom = deputy_of.get("person") if isinstance(deputy_of, dict) else None
            case = row.approval.case_id or row.approval_id
            right = {(case, person) for person in (row.person, whom) if isinstance(person, int)}
            is_counted = (str(row.approval_id), row.person) in self.votes
            if found.get(row.pk, set()) != right and (is_counted or row.pk in found):
                yield f"decision {row.pk}: the person who voted differs from the one it names"

    def _stages(self, plans: dict[str, Any]) -> Iterator[str]:
        """Check that each grant had the votes its plan requires, each with the required proof."""
        fields = {id: replace(x, payload=plans[id]) for id, (_, x) in self.requested.items() if id in plans}
        decisions, votes = [x for _, x in self.decided.values()], [x for _, x in self.votes.values()]
        for id, question in fields.items():
            is_yes = any(x.approval_id == id and x.verdict == "approved" for x in decisions)
            if is_yes and (problem := lacking(question, fields, decisions, votes)):
                yield f"approval {id} was granted, but {problem}"


RecordedVerdict = tuple[int, e.ApprovalVoted | e.ApprovalDecided]


def _rights(what: str, row: Decision) -> Iterator[str]:
    """Check the rights at the time of the decision.

    The accounts were open; the person or their principal had the role; if a key decided, it was valid; a deputyship was
    in force; and the queue was open and had that role.
    """
    deputy_of = row.standing.get("deputy_of") if isinstance(row.standing, dict) else None
    holder = deputy_of.get("person") if isinstance(deputy_of, dict) else row.person
    if holder is None or row.auth == BY_STANDING_APPROVAL:
        return
    for problem in rights_problems(row.person or holder, holder, row.role, row.at, by_key=row.auth == "api_key"):
        yield f"{what}: {problem}"
    if isinstance(deputy_of, dict) and "deputy" in deputy_of and not _is_deputy(row, deputy_of["deputy"], holder):
        yield f"{what}: account {row.person} was not the deputy of account {holder}"
    authority = row.standing if isinstance(row.standing, dict) else {}
    name = str(authority.get("queue") or row.approval.queue)
    was = _queue_at(name, row.at)
    if was.get("state") != Queue.State.OPEN:
        yield f"{what}: the queue {name} was not open"
    elif was.get("role") != row.role:
        yield f"{what}: the role {row.role} did not decide at the queue {name}"


def _is_deputy(row: Decision, number: int, principal: int) -> bool:
    in_office = Deputy.objects.filter(starts_at__lte=row.at, ends_at__gt=row.at - SLACK).exclude(revoked_at__lt=row.at)
    return in_office.filter(pk=number, deputy=row.person or 0, principal=principal).exists()


def _queue_at(name: str, at: datetime) -> dict[str, Any]:
    """Return a queue's state and role at a time, from the acts that set them, or the present ones if there are none."""
    acts = ActRecord.objects.filter(run_id=None, queue=name, action__in=_QUEUE_ACTS, n__isnull=False)
    if (last := acts.filter(at__lte=at).order_by("-n").first()) is not None:
        return last.after if isinstance(last.after, dict) else {}
    if (following := acts.order_by("n").first()) is not None:
        return following.before if isinstance(following.before, dict) else {}
    queue = Queue.objects.filter(name=name).first()
    return {} if queue is None else snapshot(queue)


def _case(row: Approval, plan: Any) -> Any:
    """Return the id of the first stage's question according to the plan; None without stages."""
    if not is_staged(plan):
        return None
    try:
        return UUID(plan["passed"][0]["approval_id"]) if plan.get("passed") else row.id
    except (KeyError, TypeError, ValueError, IndexError):
        return row.id


def _is_revised_by(previous: Approval | None, row: Approval) -> bool:
    """Return whether a question follows a rejected or amended one of the same run, tool and queue.

    An amendment of a later stage is followed by a question to the first stage.
    """
    if previous is None:
        return False
    of, is_amended = (previous.run_id, previous.tool, previous.queue), previous.state == "amended"
    is_ended = previous.state in ("rejected", "amended") or (
        previous.case_id is not None
        and Approval.objects.filter(run_id=row.run_id, case_id=previous.case_id, state="rejected").exists()
    )
    is_to = of == (row.run_id, row.tool, row.queue) or (
        is_amended and previous.case_id is not None and of[:2] == (row.run_id, row.tool)
    )
    return is_to and is_ended and previous.opened_at < row.opened_at


def _is_withdrawn_with(resolved_at: datetime | None, at: datetime | None, state: str) -> bool:
    """Return whether the state is possible without an event: the question is open or was withdrawn.

    The end of a run withdraws a question at the same time as its wait.
    """
    if state == "open":
        return at is None
    return at is not None and resolved_at is not None and abs(at - resolved_at) <= SLACK
