"""`manage.py agents`: lists the agents of this installation, and checks whether an agent's code was changed
without a new version."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connection
from psycopg_pool import PoolTimeout

from runs.engine.agents import registry
from runs.fleet import baseline
from runs.models import Run
from runs.models.run import ENDED


class Command(BaseCommand):
    help = "List the agents, or check their versions against a recorded baseline. Neither needs a database."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="list each version with its parts and fingerprint")
        check = verbs.add_parser(
            "check",
            help="check for changes under a version; exit code 0: none, 1: some, 2: the baseline can't be read",
        )
        check.add_argument("--baseline", type=Path, default=Path(baseline.FILE), help="(agents.lock.json)")
        check.add_argument("--write", action="store_true", help="record new versions; changed ones are never recorded")
        check.add_argument(
            "--forget",
            action="append",
            default=[],
            metavar="NAME@VERSION",
            help="with --write: remove a version that no longer exists and has no active runs",
        )

    def handle(self, *, verb: str, **given: Any) -> None:
        """Run the command. Raises CommandError with an exit code that tells the kind of problem."""
        if verb == "list":
            for agent in registry.agents():
                self.stdout.write(
                    f"{agent.graph_id}\t{len(agent.nodes)} nodes\t{len(agent.all_tools())} tools\t"
                    f"{len(agent.assistants)} assistants\t{agent.fingerprint()[:18]}"
                )
            return
        self._check(given["baseline"], is_write=given["write"], forget=given["forget"])

    def _check(self, path: Path, *, is_write: bool, forget: list[str]) -> None:
        if forget and not is_write:
            raise CommandError("--forget changes the baseline: give it with --write", returncode=2)
        try:
            recorded = baseline.read(path)
        except FileNotFoundError:
            if not is_write:
                raise CommandError(
                    f"there is no baseline at {path}: record one with --write, and commit it", returncode=2
                ) from None
            recorded = {}
        except baseline.BadBaseline as bad:
            raise CommandError(f"{bad}. Nothing was compared or written", returncode=2) from None
        found = baseline.compare(recorded, registry.agents())
        if unknown := [name for name in forget if name not in found.gone]:
            raise CommandError(
                f"--forget {', '.join(unknown)}: only a version that is in the baseline but not in the code can be "
                "removed. Nothing was written",
                returncode=2,
            )
        refused = [str(change) for change in found.changed] + self._gone(found.gone, set(forget)) + found.lower
        refused += [] if is_write else [f"{graph_id}: new; record it with --write" for graph_id in found.new]
        for line in refused:
            self.stderr.write(line)
        if refused:
            raise CommandError(f"{len(refused)} to be fixed; {path} was not changed", returncode=1)
        if is_write:
            self._write(path, recorded, forget)
        self.stdout.write(
            f"{len(found.same)} as recorded, {len(found.new)} new{f', {len(forget)} forgotten' if forget else ''}"
        )

    def _write(self, path: Path, recorded: dict[str, baseline.Recorded], forget: list[str]) -> None:
        try:
            baseline.write(path, recorded, registry.agents(), forget)
        except OSError as error:
            raise CommandError(f"{path} can't be written: {error.strerror}", returncode=2) from error

    def _gone(self, gone: list[str], forgotten: set[str]) -> list[str]:
        """Return a problem for each version that is in the baseline but not in this code.
        No process can drive runs of such a version. A version in `forgotten` is a problem only while it has active
        runs."""
        lines = []
        for graph_id, count in _under_way(gone).items():
            if count:
                lines.append(f"{graph_id}: gone, but {count} of its runs are active: keep it registered until they end")
            elif graph_id not in forgotten:
                known = "none of its runs is active in this database" if count == 0 else "its runs can't be counted"
                lines.append(f"{graph_id}: gone ({known}): keep it registered, or use --write --forget {graph_id}")
        return lines


def _under_way(graph_ids: list[str]) -> dict[str, int | None]:
    """Return the number of active runs per version, or None without a database, as in CI."""
    if not graph_ids:
        return {}
    try:
        return {
            graph_id: Run.objects.filter(graph_id=graph_id).exclude(state__in=ENDED).count() for graph_id in graph_ids
        }
    except (Error, PoolTimeout, OSError):
        connection.close()
        return dict.fromkeys(graph_ids)
