"""The models of runs and of the rows that belong to a run.
The legal state transitions are declared here, once; the database enforces them by a generated trigger (`legal_moves`).
A transition only declares what is legal and which fields change. Services save the run, write the journal and wake
workers."""

from __future__ import annotations

from datetime import datetime, timedelta

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Now
from django_fsm import FSMField, transition

from ledger.contents import ContentJson, ContentText
from ledger.models import Json, append_only
from runs.engine.undo import UNDO_NODE

# The default time limit of a run, waits included, so that no run is forgotten.
TIME_TO_LIVE = timedelta(days=90)
TIMED = models.Q(time_up_at__isnull=False, ended_at__isnull=True)
# The keys of a wait's detail that are stored unencrypted: SQL finds waits with them, or they are other metadata. The
# other keys contain content.
READABLE_DETAIL = frozenset(
    (
        *("agent", "approval_id", "attempt", "binds", "brought", "child", "limit", "name", "names", "of", "on_timeout"),
        *("pool", "queue", "resource", "retry", "tool", "undo", "wanted"),
    )
)
TO_REOPEN = models.Q(resolved_at__isnull=True, kind="child", detail__has_key="undo")
KEYED = ~models.Q(business_key="")
# The order in which ready runs are claimed.
WANTED = (F("graph_id"), F("is_solo"), F("lane"), F("priority") * -1, F("ready_at"))
JUDGED = (F("graph_id"), Coalesce("ended_at", "started_at").desc())
MOVED = (F("agent"), Coalesce("ended_at", "started_at").desc())
# Continuations and child runs count as already begun.
BEGUN = ~models.Q(state="pending") | models.Q(came_from__isnull=False) | models.Q(parent__isnull=False)


class State(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    WAITING_TOOL = "waiting_tool"
    WAITING_HUMAN = "waiting_human"
    WAITING_EVENT = "waiting_event"
    PAUSED = "paused"
    COMPENSATING = "compensating"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


S = State
WAITING = [S.WAITING_TOOL, S.WAITING_HUMAN, S.WAITING_EVENT]
ENDED = [S.COMPLETED, S.FAILED, S.CANCELLED]
ACTIVE = [S.PENDING, S.RUNNING, *WAITING, S.COMPENSATING]


class Run(models.Model):
    """One execution of one agent version for one input.
    Rows change on transitions only; steps change the ledger's Head."""

    id = models.UUIDField(primary_key=True)
    agent = models.TextField()
    version = models.TextField()
    graph_id = models.TextField()
    state = FSMField(default=S.PENDING, choices=S.choices, protected=True)
    generation = models.SmallIntegerField(default=0)
    node = models.TextField(blank=True, default="")
    visit = models.IntegerField(default=0)
    ready_at = models.DateTimeField(
        null=True, help_text="Time from which a worker may claim it; null if it doesn't need one."
    )
    owner = models.UUIDField(null=True, help_text="The worker process that executes the run now.")
    is_woken = models.BooleanField(
        default=False,
        help_text="Whether it continues once resumed, because something arrived or its worker paused it midway.",
    )
    is_solo = models.BooleanField(
        default=False, help_text="Whether workers keep dying on it, so that it is executed alone in a process."
    )
    priority = models.SmallIntegerField(default=0)
    business_key = models.TextField(
        blank=True, default="", db_default="", help_text="The caller's own key, such as an invoice number."
    )
    is_queued = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether it may not start before other runs of its key have ended.",
    )
    is_passed_on = models.BooleanField(
        default=False, db_default=False, help_text="Whether it has ended, and the run queued behind it was admitted."
    )
    start_at = models.DateTimeField(null=True, help_text="Time before which it may not start.")
    start_before = models.DateTimeField(null=True, help_text="If it has not started by then, it ends as cancelled.")
    tags = Json(default=list)
    lane = models.TextField(
        blank=True,
        default="",
        db_default="",
        db_collation="C",
        help_text="The tag under which it is queued; set by the database.",
    )
    trace_id = models.TextField()
    parent = models.UUIDField(null=True, help_text="The run that started it as a step.")
    parent_slot = models.TextField(blank=True, default="", db_default="")
    parent_attempt = models.SmallIntegerField(default=0, db_default=0)
    depth = models.SmallIntegerField(default=0, db_default=0, help_text="Number of its ancestors.")
    came_from = models.UUIDField(null=True, help_text="The run that this one continues.")
    first = models.UUIDField(null=True, help_text="The first run of a chain of continuations.")
    turn = models.IntegerField(default=0, db_default=0, help_text="Number of runs before it in the chain.")
    handoffs = models.SmallIntegerField(default=0, db_default=0, help_text="Number of hand-offs among them.")
    goes_on_as = models.UUIDField(
        null=True, help_text="The run that continues this one, which ended by being continued."
    )
    goes_on_by = models.TextField(blank=True, default="", db_default="", help_text="renewal, handoff, or neither.")
    forked_from = models.UUIDField(null=True, help_text="The run that it was forked or started again from.")
    fork_how = models.TextField(blank=True, default="", db_default="", help_text="fork, start_again.")
    is_told = models.BooleanField(
        default=False, db_default=False, help_text="Whether its parent was notified of its end."
    )
    protocol = models.SmallIntegerField(
        default=1,
        db_default=1,
        help_text="Protocol of the code that started it, as recorded in its first event: ledger/protocol.py.",
    )
    created_by = models.TextField()
    creator = models.BigIntegerField(
        null=True, help_text="The account of the person who started it: names can be changed."
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    last_checkpoint_at = models.DateTimeField(null=True)
    # The time at which people are asked whether the run may continue. Null if they have already been asked, or if the
    # run has no time limit.
    time_up_at = models.DateTimeField(null=True, db_default=Now() + TIME_TO_LIVE)
    erased_at = models.DateTimeField(
        null=True, help_text="Time when its content was erased; null if it was not erased."
    )
    end_seq = models.BigIntegerField(null=True, help_text="The event that holds the output or the error.")
    error_code = models.TextField(blank=True, default="")
    about = ContentText(
        run="id",
        blank=True,
        default="",
        db_default="",
        help_text="Subject taken from its input, for lists.",
    )

    class Meta:
        constraints = [
            # At most one run of a key is neither queued nor ended, whether that results from a start, a retry or its
            # turn in the queue.
            models.UniqueConstraint(
                fields=["agent", "business_key"],
                condition=KEYED & models.Q(ended_at__isnull=True, is_queued=False),
                name="runs_run_one_of_key",
            ),
            # A run has at most one continuation.
            models.UniqueConstraint(
                fields=["came_from"], condition=models.Q(came_from__isnull=False), name="runs_run_one_heir"
            ),
        ]
        indexes = [
            models.Index(*WANTED, condition=models.Q(ready_at__isnull=False), name="runs_run_wanted"),
            # The same index, limited to runs that have begun, for workers that drain a version.
            models.Index(*WANTED, condition=models.Q(ready_at__isnull=False) & BEGUN, name="runs_run_wanted_begun"),
            # The runs of a version that began or ended most recently, with which a ramp is evaluated.
            models.Index(*JUDGED, condition=models.Q(started_at__isnull=False), name="runs_run_judged"),
            # Migrated runs, with which their original version is evaluated.
            models.Index(*MOVED, condition=models.Q(started_at__isnull=False, generation__gt=0), name="runs_run_moved"),
            models.Index(fields=["time_up_at"], condition=TIMED, name="runs_run_time_up"),
            # The runs of a key that have not ended, in order of arrival.
            models.Index(
                fields=["agent", "business_key", "created_at", "id"],
                condition=KEYED & models.Q(ended_at__isnull=True),
                name="runs_run_of_key",
            ),
            models.Index(
                fields=["ended_at"],
                condition=KEYED & models.Q(ended_at__isnull=False, is_passed_on=False),
                name="runs_run_to_pass_on",
            ),
            models.Index(
                fields=["start_before"],
                condition=models.Q(start_before__isnull=False, started_at__isnull=True, ended_at__isnull=True),
                name="runs_run_start_before",
            ),
            models.Index(
                fields=["parent", "-created_at"], condition=models.Q(parent__isnull=False), name="runs_run_children"
            ),
            # Active children, to which a parent's pause, cancel and resume are passed on.
            models.Index(
                fields=["parent", "id"],
                condition=models.Q(parent__isnull=False, ended_at__isnull=True),
                name="runs_run_children_active",
            ),
            models.Index(
                fields=["ended_at"],
                condition=models.Q(parent__isnull=False, ended_at__isnull=False, is_told=False),
                name="runs_run_untold",
            ),
            # A run's continuations, in order.
            models.Index(fields=["first", "turn"], condition=models.Q(first__isnull=False), name="runs_run_succession"),
            models.Index(
                fields=["forked_from", "-created_at"],
                condition=models.Q(forked_from__isnull=False),
                name="runs_run_forks",
            ),
            # An account's runs by state, for the list of its own runs.
            models.Index(
                fields=["creator", "state", "-created_at", "-id"],
                condition=models.Q(creator__isnull=False),
                name="runs_run_by_creator",
            ),
            models.Index(fields=["trace_id"], name="runs_run_by_trace"),
            models.Index(fields=["owner"], condition=models.Q(owner__isnull=False), name="runs_run_owned"),
            models.Index(fields=["-created_at", "-id"], name="runs_run_by_time"),
            # Each list filter has an index in the list's order, so that a page reads only the rows it shows.
            models.Index(fields=["state", "-created_at", "-id"], name="runs_run_by_state_time"),
            models.Index(fields=["state", "agent", "-created_at", "-id"], name="runs_run_by_agent_time"),
            models.Index(fields=["state", "agent", "version", "-created_at", "-id"], name="runs_run_by_version_time"),
        ]

    def successors(self) -> models.QuerySet[Run]:
        return Run.objects.filter(first=self.first or self.pk).order_by("turn")

    @property
    def wants_driving(self) -> bool:
        """Return whether the run is in the queue of unclaimed runs, now or from `ready_at` on."""
        return self.owner is None and self.ready_at is not None

    @property
    def has_begun(self) -> bool:
        return self.started_at is not None or self.came_from is not None

    @property
    def is_undoing(self) -> bool:
        """Return whether the run undoes, or has undone, its effects before it ends (state `compensating` while
        active)."""
        return self.node == UNDO_NODE

    @property
    def counts_from(self) -> datetime:
        return self.created_at if self.start_at is None else max(self.start_at, self.created_at)

    # Transitions by a worker under its lease. Functions in sql/ make them; they are declared here so that they are
    # enforced.

    @transition(state, source=S.PENDING, target=S.RUNNING)
    def begin(self) -> None: ...

    @transition(state, source=[S.RUNNING, S.COMPENSATING], target=S.WAITING_TOOL)
    def park_for_tool(self) -> None: ...

    @transition(state, source=[S.PENDING, S.RUNNING, S.COMPENSATING], target=S.WAITING_HUMAN)
    def park_for_human(self) -> None: ...

    @transition(state, source=[S.RUNNING, S.COMPENSATING], target=S.WAITING_EVENT)
    def park_for_event(self) -> None: ...

    @transition(state, source=S.RUNNING, target=S.COMPLETED)
    def complete(self) -> None: ...

    @transition(state, source=[S.PENDING, S.RUNNING, S.WAITING_HUMAN, S.PAUSED, S.COMPENSATING], target=S.FAILED)
    def fail(self) -> None: ...

    @transition(state, source=S.RUNNING, target=S.COMPENSATING)
    def compensate(self) -> None: ...

    # Transitions by people and other systems.

    @transition(state, source=WAITING, target=S.RUNNING)
    def wake(self) -> None: ...

    @transition(state, source=WAITING, target=S.COMPENSATING)
    def wake_to_undo(self) -> None: ...

    @transition(state, source=ACTIVE, target=S.PAUSED)
    def pause(self) -> None: ...

    @transition(state, source=S.PAUSED, target=S.PENDING)
    def resume_unstarted(self) -> None: ...

    @transition(state, source=S.PAUSED, target=S.RUNNING)
    def resume_running(self) -> None: ...

    @transition(state, source=S.PAUSED, target=S.COMPENSATING)
    def resume_undoing(self) -> None: ...

    @transition(state, source=S.PAUSED, target=S.WAITING_TOOL)
    def resume_waiting_tool(self) -> None: ...

    @transition(state, source=S.PAUSED, target=S.WAITING_HUMAN)
    def resume_waiting_human(self) -> None: ...

    @transition(state, source=S.PAUSED, target=S.WAITING_EVENT)
    def resume_waiting_event(self) -> None: ...

    @transition(state, source=[*ACTIVE, S.PAUSED], target=S.CANCELLED)
    def cancel(self) -> None: ...

    @transition(state, source=S.FAILED, target=S.RUNNING)
    def retry(self) -> None: ...

    @transition(state, source=S.COMPLETED, target=S.COMPENSATING)
    def reopen_to_undo(self) -> None: ...


def legal_moves() -> list[tuple[str, str]]:
    return sorted({(str(t.source), str(t.target)) for t in Run._meta.get_field("state").get_all_transitions(Run)})


# This declaration is the only table of transitions: the database's trigger is generated from it, so that not even raw
# SQL can make an illegal one.
pgtrigger.register(
    pgtrigger.FSM(name="legal_moves_only", field="state", transitions=legal_moves()),
    pgtrigger.Trigger(
        name="born_pending",
        when=pgtrigger.Before,
        operation=pgtrigger.Insert,
        condition=pgtrigger.Condition("NEW.state <> 'pending'"),
        func="RAISE EXCEPTION 'a run begins as pending, not as %', NEW.state;",
    ),
    pgtrigger.Trigger(
        name="starter_is_frozen",
        when=pgtrigger.Before,
        operation=pgtrigger.UpdateOf("created_by", "creator"),
        condition=pgtrigger.AnyChange("created_by", "creator"),
        func="RAISE EXCEPTION 'who started a run never changes: run %', OLD.id;",
    ),
    pgtrigger.Trigger(
        name="succession_is_frozen",
        when=pgtrigger.Before,
        operation=pgtrigger.UpdateOf("came_from", "first", "turn", "goes_on_as", "goes_on_by"),
        condition=pgtrigger.Condition(
            "((OLD.came_from IS NOT NULL AND (NEW.came_from, NEW.first, NEW.turn)"
            " IS DISTINCT FROM (OLD.came_from, OLD.first, OLD.turn)) OR (OLD.goes_on_as IS NOT NULL"
            " AND (NEW.goes_on_as, NEW.goes_on_by) IS DISTINCT FROM (OLD.goes_on_as, OLD.goes_on_by)))"
        ),
        func="RAISE EXCEPTION 'which run goes on as which never changes: run %', OLD.id;",
    ),
    pgtrigger.Trigger(
        name="erased_is_over",
        when=pgtrigger.Before,
        operation=pgtrigger.UpdateOf("state", "erased_at"),
        condition=pgtrigger.Condition(
            "(OLD.erased_at IS NOT NULL AND (NEW.state, NEW.erased_at) IS DISTINCT FROM (OLD.state, OLD.erased_at))"
        ),
        func="RAISE EXCEPTION 'the content of run % was erased: it never goes on', OLD.id;",
    ),
    pgtrigger.Trigger(
        name="fork_is_frozen",
        when=pgtrigger.Before,
        operation=pgtrigger.UpdateOf("forked_from", "fork_how"),
        condition=pgtrigger.Condition(
            "(OLD.forked_from IS NOT NULL"
            " AND (NEW.forked_from, NEW.fork_how) IS DISTINCT FROM (OLD.forked_from, OLD.fork_how))"
        ),
        func="RAISE EXCEPTION 'of which run a run is a fork never changes: run %', OLD.id;",
    ),
)(Run)


class Wait(models.Model):
    """A condition that a run waits for. It is resolved once; the first resolution is final."""

    class Kind(models.TextChoices):
        APPROVAL = "approval"
        INPUT = "input"
        RECONCILE = "reconcile"
        OPERATOR = "operator"
        WEBHOOK = "webhook"
        TIMER = "timer"
        SIGNAL = "signal"
        MESSAGE = "message"
        CHILD = "child"
        BUDGET = "budget"
        POOL = "pool"

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="waits")
    slot = models.TextField()
    attempt = models.SmallIntegerField(default=0)
    kind = models.TextField(choices=Kind.choices)
    n = models.SmallIntegerField(default=0)
    opened_at = models.DateTimeField()
    deadline = models.DateTimeField()
    lacking = Json(
        null=True,
        help_text="For a wait for a budget: changes since it was opened, such as the amount that is missing now.",
    )
    detail = ContentJson(
        default=dict, clear=READABLE_DETAIL, help_text="Details for people and the API: short and unencrypted."
    )
    token_hash = models.BinaryField(max_length=32, null=True, unique=True)
    resolution = models.TextField(null=True)
    resolved_by = models.TextField(null=True)
    resolved_at = models.DateTimeField(null=True)
    grant_hash = models.TextField(null=True)
    grant_expires_at = models.DateTimeField(null=True)
    # Time when a grant or a callback (even a late one) was used. Neither may be used twice.
    consumed_at = models.DateTimeField(null=True)
    consumed_by = models.TextField(null=True, help_text="The slot of the call that used the approval.")
    consumed_attempt = models.SmallIntegerField(null=True, help_text="The last attempt that used it.")
    is_overdue = models.BooleanField(default=False)
    also = ArrayField(models.TextField(), null=True, help_text="Further queues to which the approval was escalated.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "slot", "attempt", "kind", "n"], name="runs_wait_once")]
        indexes = [
            models.Index(
                fields=["deadline"],
                condition=models.Q(resolved_at__isnull=True, is_overdue=False),
                name="runs_wait_due",
            ),
            models.Index(fields=["run"], condition=models.Q(resolved_at__isnull=True), name="runs_wait_open"),
            # Requests to people, for lists and counts.
            models.Index(
                fields=["opened_at", "id"],
                condition=models.Q(resolved_at__isnull=True, kind__in=["reconcile", "operator", "budget"]),
                name="runs_wait_needs_operator",
            ),
            models.Index(
                KT("detail__of"),
                "deadline",
                "id",
                condition=models.Q(resolved_at__isnull=True, kind="input"),
                name="runs_wait_for_answer",
            ),
            models.Index(
                fields=["deadline", "id"],
                condition=models.Q(resolved_at__isnull=True, kind="input"),
                name="runs_wait_questions",
            ),
            # Waits for a pool, in order of admission.
            models.Index(
                KT("detail__pool"),
                "opened_at",
                "id",
                condition=models.Q(resolved_at__isnull=True, kind="pool"),
                name="runs_wait_for_pool",
            ),
            # Waits for a permit, or for a circuit breaker to close.
            models.Index(
                KT("detail__limit"),
                "deadline",
                condition=models.Q(resolved_at__isnull=True, kind="timer", detail__has_key="limit"),
                name="runs_wait_for_limit",
            ),
            # Waits for completed children to be undone.
            models.Index(fields=["id"], condition=TO_REOPEN, name="runs_wait_to_reopen"),
        ]


class Signal(models.Model):
    """A signal sent to a run, kept until a call of the node receives it. Its content is in the event."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="signals")
    name = models.TextField()
    n = models.IntegerField()
    seq = models.BigIntegerField()
    sender_id = models.TextField(
        null=True, help_text="Id given by the sender: a repetition with it is the same signal."
    )
    taken_by = models.TextField(null=True, help_text="The slot of the call that received it.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "name", "n"], name="runs_signal_once"),
            models.UniqueConstraint(fields=["run", "name", "sender_id"], name="runs_signal_sent_once"),
        ]


class RunTag(models.Model):
    """A tag of a run: its own, or inherited from its parent or predecessor.
    A tag with a value has two rows: one for its name and one for `name:value`. Each row repeats the run's creation
    time, by which lists are sorted."""

    pk = models.CompositePrimaryKey("run_id", "tag")
    run_id = models.UUIDField()
    tag = models.TextField(db_collation="C")
    created_at = models.DateTimeField(help_text="The run's.")

    class Meta:
        indexes = [models.Index(fields=["tag", "-created_at", "-run_id"], name="runs_runtag_by_time")]


class Checkpoint(models.Model):
    """A snapshot of a run at a time when no call is in progress. The state is plain data."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    generation = models.SmallIntegerField()
    node = models.TextField()
    visit = models.IntegerField()
    schema_version = models.SmallIntegerField(default=1)
    fingerprint = models.TextField()
    state = models.BinaryField()
    checksum = models.BinaryField(max_length=32)
    at = models.DateTimeField()

    class Meta:
        triggers = append_only()


class IdempotencyRecord(models.Model):
    """The answer to a request with an Idempotency-Key.
    It is committed with the request's effects, and kept until a contrib app removes it."""

    id = models.BigAutoField(primary_key=True)
    principal = models.TextField()
    key = models.TextField()
    body_hash = models.BinaryField(max_length=32)
    status = models.SmallIntegerField()
    body = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["principal", "key"], name="runs_idempotency_once")]
        # Rows are stored in chronological order, so the answers about a run are found by scanning only the rows since
        # its start.
        indexes = [BrinIndex(fields=["created_at"], name="runs_idempotency_by_time")]


class Message(models.Model):
    """A request sent to a run. Its content and its answer are in the events."""

    class Outcome(models.TextChoices):
        WAITING = "", "waiting"
        ANSWERED = "answered"
        REFUSED = "refused"
        FAILED = "failed"
        ENDED = "ended"

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="messages")
    n = models.IntegerField(help_text="Position among the run's messages, from 1.")
    name = models.TextField()
    by = models.TextField(help_text="Who sent it.")
    sender_id = models.TextField(
        null=True, help_text="Id given by the sender: a repetition with it is the same message."
    )
    seq = models.BigIntegerField(help_text="The event of its arrival.")
    outcome = models.TextField(blank=True, default="", db_default="", choices=Outcome.choices)
    answered_seq = models.BigIntegerField(null=True, help_text="The event of its answer.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "n"], name="runs_message_once"),
            models.UniqueConstraint(fields=["run", "by", "sender_id"], name="runs_message_sent_once"),
        ]
        indexes = [
            models.Index(fields=["run", "n"], condition=models.Q(outcome=""), name="runs_message_unanswered"),
        ]


class Telling(models.Model):
    """A run's progress, and counts of its log lines.
    `seen` is the number of lines that each branch of the visit has logged."""

    run_id = models.UUIDField(primary_key=True)
    lines = models.IntegerField(help_text="Number of stored lines.")
    lost = models.BigIntegerField(help_text="Number of lines that were logged but dropped.")
    seen = models.JSONField()
    done = models.FloatField(null=True)
    total = models.FloatField(null=True)
    note = ContentText()
    at = models.DateTimeField(null=True)
    since_epoch = models.BigIntegerField(null=True, help_text="Epoch since which progress is counted.")
    since_at = models.DateTimeField(null=True)
    since_done = models.FloatField(null=True)


class LogLine(models.Model):
    """One log line of a run."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    at = models.DateTimeField()
    level = models.TextField()
    text = ContentText()

    class Meta:
        indexes = [models.Index(fields=["run_id", "id"], name="runs_logline_by_run")]
