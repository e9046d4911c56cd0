from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from durableagents.contrib.reports.management.commands.reports import add_period, write
from durableagents.contrib.reports.queries.storage import REPORT


class Command(BaseCommand):
    help = "Size by table, growth per day and agent, and a forecast."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add_period(verbs.add_parser("report", help="make the report about storage; without --format as text"))

    def handle(self, **given: Any) -> None:
        write(self, REPORT, given)
