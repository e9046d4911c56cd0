"""What the demo's scripted assistants cost, so that its runs show dollars, and how much the vendor agent may use."""

from __future__ import annotations

from runs.models import BudgetDefault
from runs.services.budgets import prices

# Millionths of a dollar for a million tokens, in and out: those of a small model.
PRICES = {"scripted:intake": (400_000, 1_600_000), "scripted:purchasing": (400_000, 1_600_000)}
# Several times what a run takes. None in dollars: an installation may ask a real model whose price nobody has set.
BUDGET = {"model_calls": 60, "tool_calls": 120}


def put_money() -> None:
    """Once: what somebody sets afterwards stays."""
    prices.ship(PRICES.items())
    BudgetDefault.objects.get_or_create(agent="vendor-onboard", tag="", defaults={"budget": BUDGET})
