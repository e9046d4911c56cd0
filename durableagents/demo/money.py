"""What the demo's scripted assistants cost, so that its runs show dollars, and how much each agent may use."""

from __future__ import annotations

from runs.models import BudgetDefault
from runs.services.budgets import prices

# Millionths of a dollar for a million tokens, in and out: those of a small model.
_SMALL = (400_000, 1_600_000)
_SCRIPTED = ("intake", "purchasing", "correspondent", "planner", "reader", "writer", "clerk")
PRICES = {f"scripted:{name}": _SMALL for name in _SCRIPTED}
# Several times what a run takes. None in dollars: an installation may ask a real model whose price nobody has set.
BUDGETS = {
    "vendor-onboard": {"model_calls": 60, "tool_calls": 120},
    "mail-before-gate": {"model_calls": 10, "tool_calls": 20},
    "customer-refund": {"model_calls": 20, "tool_calls": 20},
    "literature-review": {"model_calls": 900, "tool_calls": 1800},  # its readers' included
}


def put_money() -> None:
    """Once: what somebody sets afterwards stays."""
    prices.ship(PRICES.items())
    for agent, budget in BUDGETS.items():
        BudgetDefault.objects.get_or_create(agent=agent, tag="", defaults={"budget": budget})
