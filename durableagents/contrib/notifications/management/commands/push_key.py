"""`manage.py push_key`: create the Web Push key once, and print its public part."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from durableagents.contrib.notifications import web_push


class Command(BaseCommand):
    help = "Create the key for Web Push if there is none, and show its public part."
    requires_system_checks = ["start"]

    def handle(self, *args: Any, **options: Any) -> None:
        path = settings.DURABLEAGENTS.push_key_file
        word = "kept" if path.exists() else "made"
        web_push.create_key()
        try:
            key = web_push.read_key()
        except web_push.PushUnavailable as error:
            raise CommandError(error.detail) from None
        self.stdout.write(f"{word}: {path}")
        self.stdout.write(f"public key: {key.public}")
