"""A client generated from the served document works against the server."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import Api
from tests.integration.api.worker import TOKENS, purchase_agent, working

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_generated_client_starts_reads_lists_and_decides(
    live_server: Any, caller: Callable[[Any], Api], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = caller("integrator").headers
    (tmp_path / "schema.json").write_bytes(httpx.get(f"{live_server.url}/api/schema", headers=headers).content)
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--path", "schema.json", "--output-path", "generated_client"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    # It supports neither pictures, nor ZIP files, nor a callback's body of any type.
    assert done.stderr.count("WARNING parsing") == 3 and "removal" not in done.stderr, done.stderr
    monkeypatch.syspath_prepend(str(tmp_path))
    made = importlib.import_module("generated_client")

    def call(role: str, tag: str, operation: str, *given: Any, **more: Any) -> Any:
        key = caller(role).headers["Authorization"].removeprefix("Bearer ")
        module = importlib.import_module(f"generated_client.api.{tag}.{operation}")
        return module.sync(*given, client=made.AuthenticatedClient(base_url=live_server.url, token=key), **more)

    def body(name: str, **fields: Any) -> Any:
        models = importlib.import_module("generated_client.models")
        return getattr(models, name).from_dict(fields)

    def until(kind: str) -> Any:
        for _ in range(600):
            host.ring()  # no task queue runs here
            row = call("auditor", "runs", "runs_retrieve", run.id)
            if [wait.kind.value for wait in row.waiting_for] == [kind]:
                return row
            time.sleep(0.1)
        raise AssertionError(f"never waited for a {kind}: {row}")

    with purchase_agent(), working() as host:
        order = {"item": "chair", "amount": 500}
        run = call("integrator", "runs", "runs_create", body=body("StartBody", agent="purchase", input=order))
        until("webhook")
        assert caller("integrator").post(f"callbacks/{TOKENS[str(run.id)]}", {"price": 500}).status_code == 200
        assert until("approval").state.value == "waiting_human"
        assert [row.id for row in call("auditor", "runs", "runs_list").results] == [run.id]
        (question,) = call("approver_finance", "approvals", "approvals_list", state="open").results
        yes = body("DecisionBody", verdict="approve", justification="within budget", plan_hash=question.plan_hash)
        assert call("approver_finance", "approvals", "approvals_decide", question.id, body=yes).state.value == (
            "approved"
        )
