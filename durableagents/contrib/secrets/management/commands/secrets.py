"""`manage.py secrets`: shows the source of each secret that the agents' tools declare."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.secrets.store import Store
from runs import features
from runs.engine.agents import registry
from runs.engine.secrets import SCHEME, SecretUnavailable


class Command(BaseCommand):
    help = "Read each secret that a tool declares, and show its source, never its value; exit code 1 if one is missing."

    def handle(self, *args: Any, **options: Any) -> None:
        store = features.only(lambda each: each.secrets)
        assert isinstance(store, Store), "this app installs it"
        users: dict[str, set[str]] = {}
        for agent in registry.agents():
            for tool in agent.all_tools():
                for name in tool.secrets:
                    users.setdefault(name, set()).add(tool.name)
        missing = 0
        for name in sorted(users):
            try:
                found = store.read(name)[1].label
            except SecretUnavailable as error:
                missing, found = missing + 1, f"MISSING: {error.message}"
            self.stdout.write(f"{SCHEME}{name} ({', '.join(sorted(users[name]))}): {found}")
        if not users:
            self.stdout.write("no tool declares a secret")
        if missing:
            raise CommandError(f"{missing} of {len(users)} secrets can't be read", returncode=1)
