"""An installation with runs in every situation, and all addresses that read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from django.urls import get_resolver, reverse

from approvals.models import Approval
from runs.models import Run
from tests.integration.runs.situations import ALL
from tests.integration.runs.stage import Stage
from tests.integration.runs.test_why import MORE, Lives
from tests.integration.scale import test_statements as scale
from tests.world import Toolbox

# Nobody is signed in there, or the page belongs to another service.
ELSEWHERE = {
    "api-unknown",
    "healthz",
    "readyz",
    "metrics",
    "login",
    "sso",
    "sso_callback",
    "sign_in_code",
    "sign_in_factor",
}
# Parts with another meaning at some addresses.
NAMES = {"api-versions": "buyer", "api-run-message": "1"}


def live(stage: Stage, tools: Toolbox) -> list[Run]:
    runs, lives = [], Lives(stage, tools)
    for name in ["at_gate", "at_gate", *ALL, *MORE]:
        runs.append(lives.make(name))
        if len(runs) <= 2:
            stage.decide(runs[-1])
        Run.objects.filter(pk=runs[-1].pk).update(ready_at=None)  # so that only the next one is ready
    return runs


def addresses(runs: list[Run], is_wanted: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, str, str]]:
    """Yield (name, pattern, address) of everything readable, with every sample of each part."""
    known: dict[str, list[Any]] = {"run_id": [run.pk for run in runs]}
    for name, route in scale.named(get_resolver()):
        if not scale.is_read(route) or name in ELSEWHERE | scale.LINKS or not is_wanted(name):
            continue
        parts = list(route.pattern.converters)
        for part in parts:
            if part not in known:
                known[part] = _samples(part, runs)
        for values in product(*([NAMES.get(name, "summary")] if part == "name" else known[part] for part in parts)):
            yield name, str(route.pattern), reverse(name, kwargs=dict(zip(parts, values, strict=True)))


def _samples(part: str, runs: list[Run]) -> list[Any]:
    match part:
        case "approval_id":
            return [*Approval.objects.values_list("pk", flat=True)]
        case "graph_id" | "reference":
            return sorted({run.graph_id for run in runs})[:2]
        case "n" | "page" | "seq":
            return [1]
        case _:
            return scale.samples(part)
