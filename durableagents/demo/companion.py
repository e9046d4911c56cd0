"""What `make up` starts for the demo: its people, prices and rules, before anything serves, and the
sandbox that its agents act on."""

from __future__ import annotations

import sys

from durableagents.demo.cast import ADMIN, FILE, make_cast
from durableagents.demo.money import put_money
from durableagents.demo.oversight import put_oversight
from durableagents.env import Environment


class Demo:
    """The companion of an installation (durableagents/dev/launcher.py)."""

    name = "sandbox"
    drain_seconds = 1.0
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
        """Once the database is migrated. Raises EnvironmentProblem."""
        make_cast(self._env)
        put_money()
        put_oversight()
