"""A run that kills whoever touches it: after ten deaths in a row it waits for a person, and its neighbours never
notice."""

from __future__ import annotations

import pytest

from tests.system.crash.stack import Stack, until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.timeout(800),
    pytest.mark.long,  # minutes by design: the pauses grow
]
DEATHS = 10


def test_after_ten_deaths_in_a_row_a_run_stops_for_an_operator(stack: Stack) -> None:
    stack.hold_callbacks()
    run_id = stack.run("later", "keyed")
    stack.waits(run_id, "webhook")
    neighbour = stack.run("later", "keyed")
    stack.waits(neighbour, "webhook")
    point = f"CP0/{run_id}:kill:1"
    stack.arm(point, *[f"+{point}"] * (DEATHS - 1))
    stack.let_callbacks_go()

    until(lambda: "operator" in _kinds(stack, run_id), "the run asking for an operator", seconds=300)

    lost = [event["data"] for event in stack.api.events(run_id) if event["kind"] == "WorkerLost"]
    assert [data["deaths"] for data in lost] == list(range(1, DEATHS + 1))
    assert all(data["is_counted"] for data in lost)
    assert stack.api.run(run_id)["state"] == "waiting_human"
    stack.play(neighbour, seconds=60)
    assert stack.judged(neighbour, "later", "keyed") == []
    assert stack.api.steer(run_id, "cancel").status_code == 200
    until(lambda: stack.api.run(run_id)["state"] == "cancelled", "the cancelled run's end")


def _kinds(stack: Stack, run_id: str) -> set[str]:
    return {wait["kind"] for wait in stack.api.run(run_id)["waiting_for"]}
