"""List and change shared budgets from a shell on the server."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from pydantic import ValidationError

from durableagents.contrib.limits import shared_budgets
from durableagents.contrib.limits.budget_queries import SharedBudgetRow, list_budgets, row_of, rows_of
from durableagents.contrib.limits.models import SharedBudget
from durableagents.contrib.limits.shared_budgets import SharedBudgetBody, SharedBudgetChangeBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from runs.management.shell import operator


class Command(BaseCommand):
    help = "List, create and change budgets that many runs share per period. Changes are recorded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="list active shared budgets with their use and waiting calls")
        make = verbs.add_parser("make", help="create a shared budget")
        make.add_argument("name")
        make.add_argument("--scope", default="all", choices=[str(each) for each in SharedBudget.Scope])
        make.add_argument("--whose", default="", help="the tag, agent, person or provider")
        make.add_argument(
            "--resource", required=True, choices=["usd", "tokens_in", "tokens_out", "model_calls", "tool_calls"]
        )
        make.add_argument("--limit", required=True)
        make.add_argument("--period", required=True, choices=[str(each) for each in SharedBudget.Period])
        make.add_argument("--zone", default="UTC")
        change = verbs.add_parser("set", help="change the limit of a shared budget")
        change.add_argument("budget", type=int, help="its number in `list`")
        change.add_argument("--limit", required=True)
        off = verbs.add_parser("off", help="switch a shared budget off permanently")
        off.add_argument("budget", type=int)
        for verb in (make, change, off):
            verb.add_argument("--justification", required=True)

    def handle(self, *, verb: str, **given: Any) -> None:
        """Run the chosen verb: print a line for each shared budget, or the changed one.

        Raises CommandError for invalid input."""
        if verb == "list":
            for row in rows_of(list_budgets(limit=shared_budgets.MAX_BUDGETS)):
                self._print(row)
            return
        by = operator()
        try:
            budget = self._act(verb, given, by)
        except DurableAgentsError as refused:
            raise CommandError(refused.detail) from None
        except ValidationError as refused:
            problems = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in refused.errors(include_url=False)
            )
            raise CommandError(problems) from None
        self._print(row_of(budget))

    def _act(self, verb: str, given: dict[str, Any], by: Actor) -> SharedBudget:
        if verb == "off":
            return shared_budgets.switch_off(given["budget"], by=by, justification=given["justification"])
        if verb == "set":
            body = SharedBudgetChangeBody(limit=given["limit"], justification=given["justification"])
            return shared_budgets.change(given["budget"], body, by=by)
        names = ("name", "scope", "whose", "resource", "limit", "period", "zone", "justification")
        return shared_budgets.create(SharedBudgetBody(**{name: given[name] for name in names}), by=by)

    def _print(self, row: SharedBudgetRow) -> None:
        whose = f" {row.whose}" if row.whose else ""
        state = "off" if row.off_at is not None else f"{row.waiting} waiting"
        self.stdout.write(
            f"{row.id}\t{row.name}\t{row.resource} of {row.scope}{whose} each {row.period} ({row.zone})\t"
            f"{row.used} used, {row.reserved} reserved, of {row.limit}\t"
            f"refills {row.refills_at.isoformat()}\t{state}"
        )
