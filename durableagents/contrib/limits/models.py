"""Limits with their calls in progress and waiting workers, and shared budgets with their use."""

from __future__ import annotations

from django.db import models

from ledger.models import append_only


class Limit(models.Model):
    """The rule and state of one key, such as `tool:charge`.

    Functions in sql/limits.sql change it while they hold its row lock."""

    class Breaker(models.TextChoices):
        CLOSED = "closed"
        OPEN = "open"

    key = models.TextField(primary_key=True)
    given = models.JSONField(null=True, help_text="Rule set by a person; null: none.")
    given_by = models.TextField(blank=True, default="", db_default="")
    given_at = models.DateTimeField(null=True)
    declared = models.JSONField(null=True, help_text="Rule of the installation's settings.")
    of_tool = models.JSONField(null=True, help_text="Rule in the tool's own code.")
    # State of the token bucket.
    tokens = models.FloatField(default=0.0, db_default=0.0)
    filled_at = models.DateTimeField(null=True)
    held_until = models.DateTimeField(null=True, help_text="Time until which the upstream system asked for a pause.")
    parked_until = models.DateTimeField(null=True, help_text="Time when the last parked call is due.")
    # State of the circuit breaker.
    breaker = models.TextField(choices=Breaker.choices, default=Breaker.CLOSED, db_default=Breaker.CLOSED)
    is_by_hand = models.BooleanField(default=False, db_default=False)
    opened_at = models.DateTimeField(null=True)
    rest_until = models.DateTimeField(
        null=True, help_text="Time from which single attempts test the upstream system; null: none."
    )
    openings = models.IntegerField(default=0, db_default=0)
    window_at = models.DateTimeField(null=True)
    ok = models.IntegerField(default=0, db_default=0)
    failed = models.IntegerField(default=0, db_default=0)
    ok_before = models.IntegerField(default=0, db_default=0)
    failed_before = models.IntegerField(default=0, db_default=0)
    last_error = models.TextField(blank=True, default="", db_default="")
    last_error_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_limit"
        indexes = [models.Index(fields=["key"], name="runs_limit_pattern", condition=models.Q(key__endswith="*"))]

    def __str__(self) -> str:
        return self.key


class Permit(models.Model):
    """A call in progress under a key with limited concurrency, or the trial call of an open circuit breaker."""

    pk = models.CompositePrimaryKey("id", "key")
    id = models.UUIDField()
    key = models.TextField()
    worker = models.UUIDField()
    run_id = models.UUIDField()
    slot = models.TextField()
    taken_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    is_probe = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "runs_permit"
        indexes = [models.Index(fields=["key"], name="runs_permit_of_key")]


class LimitLine(models.Model):
    """A worker with calls that wait in a key's queue for a permit."""

    pk = models.CompositePrimaryKey("key", "worker")
    key = models.TextField()
    worker = models.UUIDField()
    since = models.DateTimeField()
    seen_until = models.DateTimeField()
    waiting = models.IntegerField(default=1)

    class Meta:
        db_table = "runs_limitline"


class SharedBudget(models.Model):
    """A budget per period for all calls in a scope.

    Only its name and limit can change, and it can't be switched on again."""

    class Scope(models.TextChoices):
        ALL = "all"
        TAG = "tag"
        AGENT = "agent"
        PERSON = "person"
        PROVIDER = "provider"

    class Resource(models.TextChoices):
        USD = "usd_micro"
        TOKENS_IN = "tokens_in"
        TOKENS_OUT = "tokens_out"
        MODEL_CALLS = "model_calls"
        TOOL_CALLS = "tool_calls"

    class Period(models.TextChoices):
        DAY = "day"
        WEEK = "week"
        MONTH = "month"

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    scope = models.TextField(choices=Scope.choices)
    of = models.TextField(
        blank=True, default="", help_text="The tag, agent, account id or provider; empty for the scope all."
    )
    resource = models.TextField(choices=Resource.choices)
    period = models.TextField(choices=Period.choices)
    zone = models.TextField(default="UTC")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    off_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "runs_pool"
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=models.Q(off_at__isnull=True), name="runs_pool_one_of_name"
            ),
            models.UniqueConstraint(
                fields=["scope", "of", "resource", "period", "zone"],
                condition=models.Q(off_at__isnull=True),
                name="runs_pool_one_of_kind",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class BudgetMeter(models.Model):
    """The use of a shared budget in the current period.

    Each call locks this row, so the row is narrow and only its key is indexed. If `ends_at` has passed, no call has
    begun since then."""

    budget = models.OneToOneField(
        SharedBudget, on_delete=models.PROTECT, primary_key=True, related_name="meter", db_column="pool_id"
    )
    resource = models.TextField()
    period = models.TextField()
    zone = models.TextField()
    most = models.BigIntegerField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    used = models.BigIntegerField(default=0)
    reserved = models.BigIntegerField(default=0)
    is_on = models.BooleanField(default=True)
    warned_at = models.DateTimeField(null=True)
    gate_at = models.DateTimeField(null=True, help_text="Time since which calls wait; new calls queue behind them.")
    promised = models.BigIntegerField(default=0, help_text="Admitted a moment ago, so the call may not have begun.")
    promised_at = models.DateTimeField(null=True)
    is_untold = models.BooleanField(default=False, help_text="A notice has not been logged yet.")

    class Meta:
        db_table = "runs_poolmeter"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(used__gte=0, reserved__gte=0, most__gte=0), name="runs_poolmeter_not_negative"
            )
        ]


class BudgetPeriod(models.Model):
    """A past period. Reservations made in the period are still settled in it."""

    id = models.BigAutoField(primary_key=True)
    budget = models.ForeignKey(SharedBudget, on_delete=models.PROTECT, related_name="periods", db_column="pool_id")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    most = models.BigIntegerField()
    used = models.BigIntegerField()
    reserved = models.BigIntegerField()

    class Meta:
        db_table = "runs_poolperiod"
        constraints = [
            models.UniqueConstraint(fields=["budget", "starts_at"], name="runs_poolperiod_once"),
            models.CheckConstraint(
                condition=models.Q(used__gte=0, reserved__gte=0), name="runs_poolperiod_not_negative"
            ),
        ]


class BudgetCharge(models.Model):
    """The amount that one call took from a shared budget, in the period in which the call began.

    `used` is null while unknown."""

    pk = models.CompositePrimaryKey("run_id", "slot", "attempt", "n", "budget_id")
    run_id = models.UUIDField()
    slot = models.TextField()
    attempt = models.SmallIntegerField()
    n = models.IntegerField()
    # No foreign key: it would check the row of the shared budget for every call.
    budget_id = models.BigIntegerField(db_column="pool_id")
    starts_at = models.DateTimeField()
    reserved = models.BigIntegerField()
    used = models.BigIntegerField(null=True)

    class Meta:
        db_table = "runs_poolcharge"
        indexes = [models.Index(fields=["budget_id", "starts_at"], name="runs_poolcharge_of_period")]


class BudgetNotice(models.Model):
    """A notice, sent once per period: 80 percent of a shared budget is used, or calls wait for it."""

    class Kind(models.TextChoices):
        WARNING = "warning"
        BREACH = "breach"

    id = models.BigAutoField(primary_key=True)
    budget = models.ForeignKey(SharedBudget, on_delete=models.PROTECT, related_name="notices", db_column="pool_id")
    starts_at = models.DateTimeField()
    kind = models.TextField(choices=Kind.choices)
    at = models.DateTimeField()
    most = models.BigIntegerField()
    used = models.BigIntegerField()
    reserved = models.BigIntegerField()

    class Meta:
        db_table = "runs_poolnotice"
        constraints = [models.UniqueConstraint(fields=["budget", "starts_at", "kind"], name="runs_poolnotice_once")]
        triggers = append_only()
