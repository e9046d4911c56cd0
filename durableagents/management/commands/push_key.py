"""`manage.py push_key`: create the Web Push key once, and print its public part."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from approvals import push
from durableagents.env import kept_secret


class Command(BaseCommand):
    help = "Make the key for Web Push if there is none, and show its public part."
    requires_system_checks = ["start"]

    def handle(self, *args: Any, **options: Any) -> None:
        path = settings.DURABLEAGENTS.push_key_file
        was = path.exists()
        kept_secret(path, make=lambda _: push.made().strip())
        try:
            key = push.own()
        except push.PushUnavailable as error:
            raise CommandError(error.detail) from None
        self.stdout.write(f"{'kept' if was else 'made'}: {path}")
        self.stdout.write(f"public key: {key.public}")
