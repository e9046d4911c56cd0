from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from runs.workers import forkserver, q2_cluster


class Command(BaseCommand):
    help = "One django-q2 cluster with one worker process. Started by `manage.py worker`, not by hand."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--report", type=int, help="file descriptor of the pipe to the parent")
        parser.add_argument(
            "--nursery", type=int, help="fork clusters, as asked through this file descriptor, instead of becoming one"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["nursery"] is not None:
            forkserver.nurse(options["nursery"], q2_cluster.warm_up, q2_cluster.become)
        q2_cluster.warm_up()
        q2_cluster.become(q2_cluster.wait_for_number(), options["report"])
