"""`manage.py check`, which also names the apps of `durableagents/contrib` that aren't installed."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.commands import check

import durableagents


class Command(check.Command):
    def handle(self, *app_labels: Any, **options: Any) -> None:
        super().handle(*app_labels, **options)
        for folder in sorted(Path(durableagents.__file__).with_name("contrib").iterdir()):
            name, config = f"durableagents.contrib.{folder.name}", folder / "apps.py"
            if config.exists() and not apps.is_installed(name):
                # Importing the package of an app that isn't installed could fail.
                text = ast.get_docstring(ast.parse(config.read_text())) or ""
                summary = " ".join(text.partition("See README")[0].split()).rstrip(".")
                self.stdout.write(f"{name} is not installed. Switched off: {summary[:1].lower()}{summary[1:]}.")
