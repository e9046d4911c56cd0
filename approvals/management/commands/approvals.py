"""`manage.py approvals list|show|decide`: use the approvals API under a named account."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from approvals.policy import VERDICTS
from ledger.management.in_process import ApiCommand, add_caller, caller_of, output_lines

_COLUMNS = ("id", "state", "queue", "title", "run_id", "deadline")
_FIELDS = (*_COLUMNS, "tool", "plan", "plan_hash")


class Command(ApiCommand):
    help = "List, show and decide approvals as an account (--as). Exit codes: docs/reference/cli.md."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        some = verbs.add_parser("list", help="approvals that the account may see")
        some.add_argument("--state", default="open", help="default: open; empty for all")
        some.add_argument("--queue", default="")
        some.add_argument("--limit", type=int, default=100)
        show = verbs.add_parser("show", help="one approval, with the plan to read")
        decide = verbs.add_parser("decide", help="decide one approval")
        for verb in (show, decide):
            verb.add_argument("approval", type=UUID)
        decide.add_argument("verdict", choices=list(VERDICTS))
        decide.add_argument("--plan-hash", required=True, help="of the plan that was read: see show")
        decide.add_argument("--justification", required=True)
        for verb in (some, show, decide):
            add_caller(verb)

    def handle(self, *, verb: str, **given: Any) -> None:
        """Print the answer. Raises CommandError for a refusal."""
        caller = caller_of(given)
        if verb == "list":
            found = caller.get("approvals", state=given["state"], queue=given["queue"], limit=given["limit"])
        elif verb == "show":
            found = caller.get(f"approvals/{given['approval']}")
        else:
            body = {name: given[name] for name in ("verdict", "plan_hash", "justification")}
            found = caller.post(f"approvals/{given['approval']}/decision", body)
        for line in output_lines(found, given, _COLUMNS if verb != "show" else _FIELDS):
            self.stdout.write(line)
