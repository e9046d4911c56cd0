"""Rows of models' prices, default budgets and pools."""

from __future__ import annotations

from django.db import models

from ledger.models import append_only


class Price(models.Model):
    """A model's price per million tokens from a time on. A new price is a new row."""

    id = models.BigAutoField(primary_key=True)
    model = models.TextField()
    usd_micro_in = models.BigIntegerField()
    usd_micro_out = models.BigIntegerField()
    valid_from = models.DateTimeField()
    set_by = models.TextField()
    set_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(usd_micro_in__gte=0, usd_micro_out__gte=0), name="runs_price_not_negative"
            )
        ]
        indexes = [models.Index(fields=["model", "-valid_from", "-id"], name="runs_price_in_force")]
        triggers = append_only()

    def __str__(self) -> str:
        return self.model


class BudgetDefault(models.Model):
    """The default budget of runs by agent or tag; of several the tightest counts."""

    id = models.BigAutoField(primary_key=True)
    agent = models.TextField(blank=True, default="", help_text="A name, or name@version; empty: not by agent.")
    tag = models.TextField(blank=True, default="", help_text="One of a run's tags; empty: not by tag.")
    budget = models.JSONField(help_text='The caps, for example {"usd": "5.00", "model_calls": 200}.')

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(agent="") ^ models.Q(tag=""), name="runs_budgetdefault_of_one_kind"
            ),
            models.UniqueConstraint(fields=["agent", "tag"], name="runs_budgetdefault_once"),
        ]

    def __str__(self) -> str:
        return self.agent or self.tag


class Pool(models.Model):
    """A limit over a period, shared by all calls of a scope. Only name and limit change; switching off is final."""

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
    of = models.TextField(blank=True, default="", help_text="The tag, agent, account's key or provider; of all: empty.")
    resource = models.TextField(choices=Resource.choices)
    period = models.TextField(choices=Period.choices)
    zone = models.TextField(default="UTC")
    set_by = models.TextField()
    made_at = models.DateTimeField()
    off_at = models.DateTimeField(null=True)

    class Meta:
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


class PoolMeter(models.Model):
    """A pool's usage in the current period: the one row that each call locks, so it is narrow, with no index but its
    key. If `ends_at` has passed, nothing has begun since."""

    pool = models.OneToOneField(Pool, on_delete=models.PROTECT, primary_key=True, related_name="meter")
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
    gate_at = models.DateTimeField(null=True, help_text="Since then calls wait for it, and new ones behind them.")
    promised = models.BigIntegerField(default=0, help_text="What was let in a moment ago, and may not have begun yet.")
    promised_at = models.DateTimeField(null=True)
    is_untold = models.BooleanField(default=False, help_text="A notice of it has not been logged yet.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(used__gte=0, reserved__gte=0, most__gte=0), name="runs_poolmeter_not_negative"
            )
        ]


class PoolPeriod(models.Model):
    """A past period, in which its reservations are still settled."""

    id = models.BigAutoField(primary_key=True)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="periods")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    most = models.BigIntegerField()
    used = models.BigIntegerField()
    reserved = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "starts_at"], name="runs_poolperiod_once"),
            models.CheckConstraint(
                condition=models.Q(used__gte=0, reserved__gte=0), name="runs_poolperiod_not_negative"
            ),
        ]


class PoolCharge(models.Model):
    """One call's usage of a pool, in the period of its start. `used` is null while unknown."""

    pk = models.CompositePrimaryKey("run_id", "slot", "attempt", "n", "pool_id")
    run_id = models.UUIDField()
    slot = models.TextField()
    attempt = models.SmallIntegerField()
    n = models.IntegerField()
    pool_id = models.BigIntegerField()  # no foreign key: it would check the pool's row for every call
    starts_at = models.DateTimeField()
    reserved = models.BigIntegerField()
    used = models.BigIntegerField(null=True)

    class Meta:
        indexes = [models.Index(fields=["pool_id", "starts_at"], name="runs_poolcharge_of_period")]


class PoolNotice(models.Model):
    """A notice of a pool, once per period: four fifths used, or calls wait."""

    class Kind(models.TextChoices):
        WARNING = "warning"
        BREACH = "breach"

    id = models.BigAutoField(primary_key=True)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="notices")
    starts_at = models.DateTimeField()
    kind = models.TextField(choices=Kind.choices)
    at = models.DateTimeField()
    most = models.BigIntegerField()
    used = models.BigIntegerField()
    reserved = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "starts_at", "kind"], name="runs_poolnotice_once")]
        triggers = append_only()
