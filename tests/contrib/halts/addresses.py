"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.halts import services as halts
from durableagents.contrib.halts.services import HaltBody
from ledger.actors import Actor
from tests.roles import EVERY, OPERATE

API = [
    ("GET", EVERY, "api-halts api-halt"),
    ("POST", OPERATE, "api-halts api-halt-stage api-halt-lift"),
]
READ = [
    (EVERY, "halts"),
]
ACT = [
    ({"operator"}, "new_halt halt_stages halt_liftings"),
]


def sample_halt() -> list[Any]:
    body = HaltBody(kind="starts", scope="agent", key="nobody", justification="None of these.")
    return [halts.begin(body, by=Actor("user", "olga", role="operator", person=1)).halt]


SAMPLES = {"halt": sample_halt}
