"""Verification of the run's own row against its journal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from django.db import connection

from ledger import events as e
from ledger.verification.runs import SLACK, EventLine, ReadJournal, compared
from runs.engine.checkpoints.position import REENTERED
from runs.engine.gating.fields import ABOUT_LENGTH, subject
from runs.engine.tape import payload_of
from runs.engine.undo import UNDO_NODE, WITH_PARENT
from runs.models import ENDED, WAITING, Run

_RESOLVE = (
    e.WaitResolved,
    e.ApprovalDecided,
    e.InputAnswered,
    e.CallbackReceived,
    e.SignalReceived,
    e.SignalTaken,
    e.ToolReconciled,
    e.CancelRequested,
    e.ChildEnded,
    e.MessageReceived,
    e.UndoAsked,
    e.UpstreamAsked,
    e.RunRequeued,
)


class RunFields:
    """Compares the run's row with the whole journal."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.created: e.RunCreated | None = None
        self.about = ""
        self.states = {"pending"}
        self.owner: str | None = None
        self.node, self.visit = "", 0
        self.version, self.generation = "", 0
        self.started_seq = self.entered_seq = 0
        self.end_seq: int | None = None
        self.error_code = ""
        self.child: e.ChildOf | None = None
        self.come: e.RunCarriedOn | None = None
        self.plan = e.StartPlanned()
        self.is_queued = False

    def see(self, line: EventLine) -> None:
        match line.event:
            case e.RunCreated() as created if self.created is None:
                self.created = e.RunCreated(
                    agent=created.agent, version=created.version, by=created.by, protocol=created.protocol
                )
                self.about, self.version = subject(payload_of(created))[:ABOUT_LENGTH], created.version
            case e.ChildOf() as child if line.seq == 2:
                self.child = child
            case e.RunCarriedOn() as come if line.seq in (2, 3):
                self.come = come
            case e.StartPlanned() as plan if line.seq <= 3 and not self.started_seq:
                self.plan, self.is_queued = plan, plan.behind is not None
            case e.RunAdmitted():
                self.is_queued = False
            case e.RunClaimed(worker=worker):
                self.states, self.owner = {"running"}, worker
                self.started_seq = self.started_seq or line.seq
            case e.VisitEntered(node=node, visit=visit):
                self.node, self.visit, self.entered_seq = node, visit, line.seq
            case e.RunMigrated():
                self._move(line.event)
            case e.RunParked(state=state):
                self.states, self.owner = {state}, None
            case e.RunReleased() | e.WorkerLost():
                self.owner = None
            case e.RunPaused():
                self.states, self.owner = {"paused"}, None
            case e.RunResumed(state=state):
                self.states = {state}
            case e.RunRetried():
                self.states, self.end_seq, self.error_code = {"running"}, None, ""
            case e.UndoAsked(code=code) if code == WITH_PARENT and self.states == {"completed"}:
                self.states, self.end_seq, self.node = {"running"}, None, UNDO_NODE
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled() as end:
                self._end(line.seq, end)
            case e.CancelRequested() if self.states == {"paused"}:
                # If a call in doubt is settled before the pause, the run then returns to its waits.
                self.states = {"running", *map(str, WAITING)}
            case _ if isinstance(line.event, _RESOLVE) and not self.states & {"paused", "pending", *ENDED}:
                # Whether the run was woken depends on its other waits.
                self.states = self.states | {"running"}

    def _move(self, event: e.RunMigrated) -> None:
        """Apply a migration.
        If it re-entered a visit, the run may now be running, unless it was paused, pending or ended."""
        self.version, self.generation = event.to.partition("@")[2], event.generation
        self.node = event.node or self.node
        if event.how == REENTERED and not self.states & {"paused", "pending", *ENDED}:
            self.states = self.states | {"running"}

    def _end(self, seq: int, event: e.Event) -> None:
        names = {e.RunCompleted: "completed", e.RunFailed: "failed", e.RunCancelled: "cancelled"}
        self.states, self.owner, self.end_seq = {names[type(event)]}, None, seq
        self.error_code = event.code if isinstance(event, e.RunFailed) else ""

    def _states(self) -> set[str]:
        """Return the expected states. A run that undoes its effects is compensating instead of running."""
        if self.node != UNDO_NODE:
            return self.states
        return {"compensating" if state == "running" else state for state in self.states}

    def _creator(self) -> int | None:
        """Return the expected creator: that of the parent or predecessor, if there is one."""
        before = self.come.origin if self.come else self.child.parent if self.child else None
        if before is None:
            return self.journal.started_by
        return Run.objects.filter(pk=before).values_list("creator", flat=True).first()

    def problems(self) -> Iterator[str]:
        row = self.journal.row(Run)
        if row is None:
            yield "the run's row is missing"
            return
        if self.created is None:
            if not self.journal.is_start_unreadable:
                yield "the journal does not begin with the run's creation"
            return
        made = self.created
        # A requested failure has no error code if an operator then cancels the run. Older runs have no `about`.
        yield from compared(
            "the run's row",
            row,
            {
                "agent": made.agent,
                "version": self.version,
                "graph_id": f"{made.agent}@{self.version}",
                "created_by": made.by,
                "protocol": made.protocol,
                "state": self._states(),
                "generation": self.generation,
                "node": self.node,
                "visit": self.visit,
                "end_seq": self.end_seq,
                "error_code": {self.error_code, ""} if self.end_seq is None else self.error_code,
                "creator": self._creator(),
                "about": {self.about, ""},
            },
        )
        above = self.child
        yield from compared(
            "the run's row",
            row,
            {
                "parent": UUID(above.parent) if above else None,
                "parent_slot": above.parent_slot if above else "",
                "parent_attempt": above.parent_attempt if above else 0,
                "depth": above.depth if above else 0,
            },
        )
        yield from self._about_the_plan(row)
        if (str(row.owner) if row.owner else None) != self.owner:
            yield f"the run's row: owner says {row.owner}, but the journal says {self.owner}"
        if abs(row.created_at - self.journal.at[0]) > SLACK:
            row_at, journal_at = row.created_at.isoformat(), self.journal.at[0].isoformat()
            yield f"the run's row: created_at says {row_at}, but the journal says {journal_at}"
        for column, seq in (
            ("started_at", self.started_seq),
            ("last_checkpoint_at", self.entered_seq),
            ("ended_at", self.end_seq or 0),
        ):
            at = getattr(row, column)
            if not (self.journal.is_about(seq, at) if seq else at is None):
                yield f"the run's row: {column} says {at and at.isoformat()}, which differs from the journal"

    def _about_the_plan(self, row: Run) -> Iterator[str]:
        plan = self.plan
        yield from compared(
            "the run's row",
            row,
            {
                "business_key": self.come.business_key if self.come else plan.business_key,
                "is_queued": self.is_queued,
                "start_at": _moment(plan.start_at),
                "start_before": _moment(plan.start_before),
            },
        )
        waits_still = self.is_queued and self.states == {"pending"}
        if waits_still and row.ready_at is not None:
            yield "the run's row: it is queued behind other runs of its key, but its row says that it is ready"
        ready, start = row.ready_at, row.start_at
        if self.states == {"pending"} and ready is not None and start is not None and ready < start:
            yield "the run's row: it is ready before its earliest start time"


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


# Selects missing and superfluous rows of tags.
_DIFFERENT = """
    WITH run AS (SELECT id, tags, parent, came_from FROM runs_run WHERE id = %s),
    wanted AS (SELECT runs_tags_of(run.tags) AS tag FROM run
               UNION SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id IN (run.parent, run.came_from)),
    there AS (SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id = run.id)
    SELECT coalesce(wanted.tag, there.tag), there.tag IS NULL FROM wanted FULL JOIN there ON there.tag = wanted.tag
    WHERE wanted.tag IS NULL OR there.tag IS NULL ORDER BY 1 LIMIT 20"""

_MISSING = "it or a run it came from has the tag {tag!r}, but people who see runs by that tag can't see it"
_MORE = "people who see runs by the tag {tag!r} can see it, though neither it nor a run it came from has that tag"


class SeenBy:
    """Compares tag rows with the run's row and those of its parents and predecessors.
    The journal does not contain tags."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: EventLine) -> None:
        """Do nothing. Events have no tags."""

    def problems(self) -> Iterator[str]:
        with connection.cursor() as cursor:
            cursor.execute(_DIFFERENT, [self.journal.run_id])
            for tag, is_missing in cursor.fetchall():
                yield (_MISSING if is_missing else _MORE).format(tag=tag)
