from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import CHECKOUT, plain_env

_ENGINE = sorted(path.relative_to(CHECKOUT) for path in (CHECKOUT / "runs/engine").rglob("[!_]*.py"))
PURE = [
    *("durableagents", "runs.backoff", "approvals.policy"),
    *("ledger.chain", "ledger.codec", "ledger.codes", "ledger.entries", "ledger.events"),
    *(".".join(path.with_suffix("").parts) for path in _ENGINE),
]
HEAVY = ["django", "psycopg", "pydantic_ai", "rest_framework", "channels", "django_q", "pgtrigger", "httpx", "openai"]


def test_importing_pure_modules_loads_no_framework() -> None:
    """In a separate process without settings: earlier imports here would hide it."""
    code = f"""
import importlib, sys
for module in {PURE!r}:
    importlib.import_module(module)
    if found := sorted(set({HEAVY!r}) & set(sys.modules)):
        sys.exit(f"{{module}} loads {{found}}")
"""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd="/", env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_answers_people_loads_no_library_of_models(tmp_path: Path) -> None:
    code = """
import sys
import django
django.setup()
import durableagents.server.asgi, durableagents.urls
if found := sorted({"pydantic_ai", "openai", "anthropic", "jsonschema"} & set(sys.modules)):
    sys.exit(f"web loads {found}")
"""
    env = {**plain_env(tmp_path), "PYTHONPATH": str(CHECKOUT), "DJANGO_SETTINGS_MODULE": "durableagents.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd="/", env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_an_integrator_imports_is_complete_and_has_docstrings() -> None:
    import durableagents

    for name in durableagents.__all__:
        assert getattr(durableagents, name).__doc__, name
    promised = (
        "Agent Context tool ReplayClass Pending End Gate Evidence Assistant Failure Rejected "
        "NotSent TransportError BusinessFailure"
    )
    assert set(promised.split()) <= set(durableagents.__all__)


def test_nothing_imports_internal_modules_of_allauth() -> None:
    """They change without notice."""
    internal = re.compile(r"^\s*(?:from|import) allauth\.(?:\w+\.)*internal\b", re.MULTILINE)
    for top in ("durableagents", "runs", "approvals", "ledger", "tests"):
        found = [path for path in (CHECKOUT / top).rglob("*.py") if internal.search(path.read_text())]
        assert not found, found
