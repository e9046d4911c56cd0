"""`manage.py web`: serve HTTP and WebSockets. See durableagents/server/serve.py."""

from __future__ import annotations

import argparse
import socket
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from runs.management.shell import refuse_what_does_not_fit


class Command(BaseCommand):
    help = "Serves the console and the API. SIGTERM hands over to another process that shares the socket; SIGINT stops."
    requires_system_checks = ["start"]  # see durableagents/checks.py

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument(
            "--fd", type=int, help="a listening socket that is open already, instead of --host and $PORT"
        )
        parser.add_argument(
            "--processes", type=int, default=1, metavar="N", help="how many to serve with (default: %(default)s)"
        )
        parser.add_argument("--ready-fd", type=int, help="write a line here when it serves")

    def handle(self, *args: Any, **options: Any) -> None:
        from durableagents.server.child_processes import serve_all
        from durableagents.server.serve import listen, serve

        if not 1 <= options["processes"] <= 64:
            raise CommandError(f"--processes {options['processes']}: 1 to 64", returncode=2)
        known = settings.DURABLEAGENTS
        refuse_what_does_not_fit()
        try:
            if options["fd"] is None:
                listener = listen(options["host"], known.port)
            else:
                listener = socket.socket(fileno=options["fd"])
        except OSError as error:
            where = f"--fd {options['fd']}" if options["fd"] is not None else f"{options['host']}:{known.port}"
            raise CommandError(f"can't listen on {where}: {error.strerror or error}", returncode=2) from error
        how = {"patience_seconds": known.drain_seconds, "ready_fd": options["ready_fd"]}
        sys.exit(
            serve(listener, **how) if options["processes"] == 1 else serve_all(listener, options["processes"], **how)
        )
