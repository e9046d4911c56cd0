from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from runs import cluster


class Command(BaseCommand):
    help = "One django-q2 cluster with one worker process. Started by `manage.py worker`, not by hand."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--report", type=int, required=True, help="file descriptor of the pipe to the parent")

    def handle(self, *args: Any, **options: Any) -> None:
        cluster.warm_up()
        cluster.run(number=cluster.wait_for_number(), report=options["report"])
