"""The judge of budgets that runs share finds what is wrong, and nothing where all is well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.cases import each_case
from tests.system.crash.shared import Shared, judge_shared

ROUTED = {
    "kind": "ModelRouted",
    "slot": "0.1/1",
    "attempt": 0,
    "data": {"n": 0, "tokens_in": 10, "tokens_out": 100, "usd_micro": 7},
}
DEBITED = {
    "kind": "BudgetDebited",
    "slot": "0.1/1",
    "attempt": 0,
    "data": {"n": 0, "tokens_in": 9, "tokens_out": 20, "usd_micro": 3, "model_calls": 1},
}
CALLED = {"kind": "ToolInvoked", "slot": "0.1/2", "attempt": 0, "data": {}}
CHARGE = {"run": "r", "slot": "0.1/1", "attempt": 0, "n": 0, "pool": 1, "starts_at": "may", "reserved": 100, "used": 20}
CALL = CHARGE | {"slot": "0.1/2", "pool": 2, "reserved": 1, "used": 1}
MAY = {"pool": 1, "starts_at": "may", "most": 100, "used": 20, "reserved": 0}
CALLS = MAY | {"pool": 2, "most": 1, "used": 1}
WELL = Shared([{"id": 1, "resource": "tokens_out"}, {"id": 2, "resource": "tool_calls"}], [MAY, CALLS], [CHARGE, CALL])
JOURNAL: dict[str, list[dict[str, Any]]] = {"r": [ROUTED, DEBITED, CALLED]}


def found(shared: Shared, journal: dict[str, list[dict[str, Any]]] = JOURNAL) -> list[str]:
    return sorted({finding.kind for finding in judge_shared(shared, journal, frozenset({"r"}))})


def test_nothing_is_found_where_each_took_its_share_once() -> None:
    assert found(WELL) == []
    assert found(replace(WELL, charges=[], periods=[], is_off=True)) == []


@each_case(
    ("changed", "kinds"),
    [
        ({"charges": [CHARGE]}, ["duplicate", "lost"]),
        ({"charges": [CHARGE, CALL, CALL | {"slot": "0.9/9"}], "periods": [MAY, CALLS | {"used": 2}]}, ["duplicate"]),
        ({"charges": [CHARGE | {"used": 21}, CALL], "periods": [MAY | {"used": 21}, CALLS]}, ["broken"]),
        ({"charges": [CHARGE | {"reserved": 99}, CALL]}, ["broken"]),
        ({"periods": [MAY | {"reserved": 80}, CALLS]}, ["duplicate"]),
        ({"periods": [MAY | {"used": 0}, CALLS]}, ["lost"]),
        ({"periods": [CALLS]}, ["broken"]),
        ({"periods": [MAY | {"most": 19}, CALLS]}, ["duplicate"]),
    ],
)
def test_what_is_wrong_is_found(changed: dict[str, Any], kinds: list[str]) -> None:
    assert found(replace(WELL, **changed)) == kinds


def test_what_a_run_that_has_ended_left_set_aside_is_found() -> None:
    left = replace(WELL, charges=[CHARGE | {"used": None}, CALL], periods=[MAY | {"used": 0, "reserved": 100}, CALLS])
    assert found(left, {"r": [ROUTED, CALLED]}) == ["lost"]
