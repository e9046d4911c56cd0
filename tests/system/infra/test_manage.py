"""`manage.py` for beginners, and with mistyped commands."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core import checks

from durableagents import env
from tests.conftest import CHECKOUT, database_urls, plain_env
from tests.system.infra.installation import assert_refused

Manage = Callable[..., subprocess.CompletedProcess[str]]


def test_a_python_without_our_environment_is_told_where_it_is(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    done = subprocess.run(
        [tmp_path / "bare/bin/python", CHECKOUT / "manage.py", "up"],
        env=plain_env(tmp_path / "data"),
        capture_output=True,
        text=True,
    )
    assert_refused(done, "no django", "make install", ".venv/bin/python")


def test_a_name_that_nothing_reads_is_told_with_what_may_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLEAGENTS_WORKRES", "3")
    monkeypatch.setenv("DURABLEAGENTS_UP", "a mark")
    assert env.unread() == ["DURABLEAGENTS_WORKRES is set, but nothing reads it: did you mean DURABLEAGENTS_WORKERS?"]


def test_the_check_tells_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.run_checks(tags=["environment"]) == []
    monkeypatch.setenv("DURABLEAGENTS_AGENST", "x")
    (found,) = checks.run_checks(tags=["environment"])
    assert "did you mean DURABLEAGENTS_AGENTS?" in found.msg and found.hint


def test_the_name_is_told_once_and_the_command_goes_on(
    django_db_setup: None, postgres: Mapping[str, str], manage: Manage
) -> None:
    with psycopg.connect(database_urls(postgres)["admin"]) as link:  # another test's process may have served it
        link.execute("DELETE FROM durableagents_masterkey")
    done = manage(
        "migrate", "--check", env={"DATABASE_URL": database_urls(postgres)["admin"], "DURABLEAGENTS_WORKRES": "3"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("DURABLEAGENTS_WORKRES") == 1


def test_the_web_process_starts_without_a_warning(tmp_path: Path) -> None:
    """Also not about a folder that nobody makes."""
    completed: Any = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            "import django; django.setup(); from django.core.handlers.base import BaseHandler; "
            "BaseHandler().load_middleware()",
        ],
        cwd=CHECKOUT,
        env={**plain_env(tmp_path / "data"), "DJANGO_SETTINGS_MODULE": "durableagents.settings"},
        capture_output=True,
        text=True,
    )
    assert "static" not in completed.stderr and "No directory" not in completed.stderr, completed.stderr


def test_an_output_that_nobody_reads_further_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} manage.py check --list-tags | true"],
        env=plain_env(tmp_path / "data"),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr, done.stderr
