"""Write the generated parts of docs/reference."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    help = "Write the generated parts of docs/reference from the code. Needs a checkout, but no database."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="write nothing; exit code 1 if a page is not up to date"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # Imported here because this loads the API's schema and the test kit, which no other command needs.
        from durableagents.dev import docs_reference

        if not docs_reference.PAGES.is_dir():
            raise CommandError(f"{docs_reference.PAGES} does not exist: run this in a checkout")
        pages = docs_reference.stale() if options["check"] else docs_reference.write()
        for page in pages:
            self.stdout.write(f"{page.name}")
        if options["check"] and pages:
            raise CommandError("Not up to date: run manage.py docs_reference")
