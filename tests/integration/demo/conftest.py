"""The demo's environment: a real sandbox process, and tool calls as the engine makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durableagents import ToolCall
from tests.conftest import free_ports
from tests.system.sandbox.harness import Sandbox

RUN_ID = "0199c0de-0000-7000-8000-000000000001"


@pytest.fixture(scope="session")
def _process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    own = Sandbox(tmp_path_factory.mktemp("demo") / "data", *free_ports(2))
    own.start()
    yield own
    own.close()


@pytest.fixture
def sandbox(_process: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Sandbox]:
    """The sandbox for this process's tools, without faults; the vault belongs to the test."""
    monkeypatch.setenv("SANDBOX_PORT", str(_process.http_port))
    monkeypatch.setenv("SANDBOX_SMTP_PORT", str(_process.smtp_port))
    monkeypatch.setenv("DURABLEAGENTS_DATA", str(tmp_path / "data"))
    if _process.process is None:
        _process.start()
    yield _process
    if _process.process is not None:
        _process.client.delete("/faults").raise_for_status()


MakeCall = Callable[..., ToolCall]


@pytest.fixture
def make_call(request: pytest.FixtureRequest) -> MakeCall:
    def make(tool: str, *, key: str | None = "", **changed: object) -> ToolCall:
        given = {
            "run_id": RUN_ID,
            "trace_id": "5" * 32,
            "tool": tool,
            "slot": f"0.1/{abs(hash(request.node.name)) % 10**6}",
            "attempt": 0,
            "key": f"da-{request.node.name[:80]}-{tool}" if key == "" else key,
            "callback_url": None,
            "timeout": 5.0,
        }
        return ToolCall(**{**given, **changed})  # type: ignore[arg-type]

    return make
