"""A worker stopped for longer than the TTL loses its run, and its answer is accepted when it returns."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.crash.stack import Stack, kill
from tests.waiting import eventually


class Impatient(Stack):
    """An installation with the shortest possible TTL."""

    def environment(self, **extra: str) -> dict[str, str]:
        return super().environment(DURABLEAGENTS_HOST_TTL_SECONDS="5", **extra)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Stack]:
    stack = Impatient(tmp_path, workers=2)
    try:
        yield stack.start()
    finally:
        stack.end()


def test_a_stopped_worker_is_taken_over_after_the_ttl_and_is_heard_when_it_comes_back(impatient: Stack) -> None:
    stack = impatient
    [supervisor] = stack.pids("supervisor")
    os.kill(supervisor, signal.SIGSTOP)  # it would end a worker without signs of life
    stack.arm("CP4@unsafe:stop:1")
    run_id = stack.run("unsafe", "keyed")
    eventually(lambda: stack.acted(), "the crash point")
    claim = next(event["data"] for event in stack.api.events(run_id) if event["kind"] == "RunClaimed")

    stack.waits(run_id, "reconcile")
    (incident,) = stack.api._all(f"/runs/{run_id}/incidents")
    assert (incident["cause"], incident["reached"], incident["is_counted"]) == ("suspicion", "intent_durable", False)
    assert incident["silent_seconds"] >= 5 and [call["fate"] for call in incident["calls"]] == ["refused"]
    refused = stack.api.reconcile(run_id, "did_not")
    assert refused.status_code == 409 and "still alive" in refused.text

    kill(int(claim["pid"]), signal.SIGCONT)
    eventually(lambda: stack.api.run(run_id)["state"] != "waiting_human", "its own answer settles it")
    os.kill(supervisor, signal.SIGCONT)
    assert stack.play(run_id) == [], "nobody had to settle anything"
    assert stack.judged(run_id, "unsafe", "keyed") == []
    eventually(lambda: len(set(stack.pids("worker")) - {int(claim["pid"])}) == 2, "another worker in its place")
