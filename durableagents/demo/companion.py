"""Start the demo for `make up`: create its people, prices and rules before anything serves, then run the sandbox
that its agents act on."""

from __future__ import annotations

import sys

from durableagents.demo.cast import ADMIN, FILE, make_cast
from durableagents.demo.oversight import put_oversight
from durableagents.env import Environment
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
    """Set the demo's prices and budgets, unless they have been set before."""
    prices.ship(PRICES.items())
    for agent, budget in BUDGETS.items():
        BudgetDefault.objects.get_or_create(agent=agent, tag="", defaults={"budget": budget})


class Demo:
    """The companion of an installation (durableagents/dev/launcher.py)."""

    name = "sandbox"
    drain_seconds = 3.0  # the sandbox itself waits a second for open requests
    environment = {"DURABLEAGENTS_DEMO": "1"}

    def __init__(self, environment: Environment) -> None:
        self._env = environment
        self.argv = [sys.executable, "-m", "durableagents.demo.sandbox"]
        self.ports = {
            "SANDBOX_PORT": environment.sandbox_port,
            "SANDBOX_SMTP_PORT": environment.sandbox_smtp_port,
        }
        self.greeting = (
            f"  console  {environment.base_url}   one click signs you in as finance, treasurer, legal,"
            " operator, integrator or auditor\n"
            f"  sandbox  {environment.sandbox_url}   the outside systems the agents act on\n"
            f"  {environment.data / FILE} has the passwords (user {ADMIN}, whose page is /setup)"
            " and the API keys\n"
        )

    def prepare(self) -> None:
        """Prepare the demo. Called once the database is migrated. Raises EnvironmentProblem."""
        make_cast(self._env)
        put_money()
        put_oversight()
