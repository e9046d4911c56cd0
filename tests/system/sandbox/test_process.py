"""The process: starts alone on its data, explains in one line why it can't, and stops when told."""

from __future__ import annotations

import ast
import signal
import smtplib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from .harness import CHECKOUT, PATIENCE_SECONDS, Sandbox


def refusal(sandbox: Sandbox, **changed: str) -> str:
    process = sandbox.spawn(**changed)
    errors = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert process.returncode == 2
    assert errors.count("\n") == 1
    return errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_while_clients_hang_on(sandbox: Sandbox, number: signal.Signals) -> None:
    sandbox.fault(system="erp", latency_ms=600_000)
    with ThreadPoolExecutor(1) as pool, smtplib.SMTP("127.0.0.1", sandbox.smtp_port) as smtp:
        smtp.ehlo()
        hanging = pool.submit(sandbox.create_vendor, "k")
        sandbox.wait_for_rows("create_vendor", 1)
        client = sandbox.client
        started = time.monotonic()

        code, errors = sandbox.end(number)

        assert time.monotonic() - started < 60, "it does not wait for them"
        assert code == 0
        assert "Traceback" not in errors
        assert isinstance(hanging.exception(), httpx.TransportError) or hanging.result().is_error
        client.close()
        smtp.close()


def test_a_second_sandbox_on_the_same_data_is_refused(sandbox: Sandbox, ports: Callable[[int], list[int]]) -> None:
    web, smtp = ports(2)
    answer = refusal(sandbox, SANDBOX_PORT=str(web), SANDBOX_SMTP_PORT=str(smtp))
    assert "another sandbox" in answer


def test_its_code_uses_none_of_ours() -> None:
    """The oracle must not share a mistake with what it judges."""
    package = CHECKOUT / "durableagents/demo/sandbox"
    for path in package.rglob("*.py"):
        depth = len(path.relative_to(package).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level <= depth, path
                continue
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            ours = {"durableagents", "runs", "ledger", "approvals", "django"}
            assert not {name.split(".")[0] for name in names} & ours, path
