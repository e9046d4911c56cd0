"""`manage.py setup_link`: print the link for the first administrator (see first_admin.py)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.accounts import first_admin
from runs.management.shell import command_actor


class Command(BaseCommand):
    help = "Print a link for the first administrator's account. It works once, for one day, and replaces older links."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(first_admin.new_link(command_actor()))
        except first_admin.AlreadySetUp as refusal:
            raise CommandError(f"{refusal.title}. {refusal.detail}") from None
