"""What `migrate` says, also as log records."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.utils import ProgrammingError

from durableagents.logs import OneObject


@pytest.mark.django_db
def test_migrate_logs_its_lines_and_its_failure_as_json(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler(into := StringIO())
    handler.setFormatter(OneObject())
    log = logging.getLogger("durableagents.migrate")
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "level", logging.INFO)
    call_command("migrate", "--plan")
    assert into.getvalue() == ""  # text goes to stdout, as Django's
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"log_format": "json"})
    call_command("migrate", "--plan")
    told = [json.loads(line)["message"] for line in into.getvalue().splitlines()]
    assert told == ["Planned operations:", "No planned migration operations."]

    def failing(*args: Any, **options: Any) -> None:
        raise ProgrammingError("relation is damaged")

    monkeypatch.setattr("django.core.management.commands.migrate.MigrationExecutor", failing)
    with pytest.raises(CommandError, match="ProgrammingError: relation is damaged"):
        call_command("migrate")
    assert "Traceback" in json.loads(into.getvalue().splitlines()[-1])["exception"]
