"""Models of the prices of AI models and of default budgets."""

from __future__ import annotations

from django.db import models

from ledger.models import append_only


class Price(models.Model):
    """An AI model's price per million tokens, in force from a given time. Each new price is a new row."""

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
    """The default budget of runs of an agent or with a tag. If several apply, the smallest cap applies."""

    id = models.BigAutoField(primary_key=True)
    agent = models.TextField(blank=True, default="", help_text="Name, or name@version; empty: any agent.")
    tag = models.TextField(blank=True, default="", help_text="Tag of a run; empty: any tag.")
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
