"""`manage.py large_values prepare|status|collect`: manage the store of large values."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.large_values import collecting, stores


class Command(BaseCommand):
    # System checks are off here, because they fail until `prepare` has marked the folder.
    requires_system_checks = ()
    help = "Prepare the store of large values, show its state, or delete values that nothing refers to."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("prepare", help="mark the folder of DURABLEAGENTS_LARGE_VALUES as the store")
        verbs.add_parser("status", help="runs, values and bytes; exit code 1 if the store can't be used")
        verbs.add_parser("collect", help="delete values that nothing has referred to for a day")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        store = stores.configured()
        if store is None:
            raise CommandError("no store is set: see DURABLEAGENTS_LARGE_VALUES", returncode=2)
        try:
            self._act(store, verb)
        except stores.Unavailable as error:
            raise CommandError(str(error), returncode=2 if verb == "prepare" else 1) from None

    def _act(self, store: stores.Folder | stores.DjangoStorage, verb: str) -> None:
        if verb == "prepare":
            store.prepare()
            self.stdout.write("ready: restart web and workers on every host with this setting")
            return
        if problem := store.problem():
            raise CommandError(problem, returncode=1)
        if verb == "collect":
            done = collecting.collect()
            self.stdout.write(f"deleted {done.values} value(s), {done.bytes} bytes")
            return
        runs = count = size = 0
        for run_id in store.runs():
            runs += 1
            for _, _, each in store.values(run_id):
                count, size = count + 1, size + each
        self.stdout.write(f"{runs} run(s), {count} value(s), {size} bytes")
