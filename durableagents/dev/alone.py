"""`DURABLEAGENTS_DEMO=0 make up`: an installation without the demo's people, agents and sandbox.

Where nobody administers it yet, the link for the first account is said once it is up; else that somebody does.
"""

from __future__ import annotations

from durableagents.env import Environment


class Alone:
    """The companion of an installation that acts on the real world: none."""

    name = "none"
    drain_seconds = 0.0

    def __init__(self, environment: Environment) -> None:
        self._env = environment
        self.argv: list[str] = []
        self.ports: dict[str, int] = {}
        self.environment = {"DURABLEAGENTS_DEMO": "0"}
        self.greeting = f"  console  {environment.base_url}\n"

    def prepare(self) -> None:
        """Once the database is migrated."""
        from durableagents.identity import first_admin
        from runs.management.shell import whoever

        if first_admin.is_open():
            link = first_admin.new_link(whoever())
            self.greeting += f"  set-up   {link}   works once, for a day; `manage.py setup_link` makes another\n"
        else:
            new = "" if self._env.database_url else "; a new one takes a DURABLEAGENTS_DATA of its own"
            self.greeting += f"  set-up   somebody administers this installation already: sign in as them{new}\n"
