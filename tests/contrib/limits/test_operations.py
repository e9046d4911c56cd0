"""The operators' pages: limits, shared budgets, fleet actions and recoveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durableagents.contrib.limits.models import BudgetMeter, Limit, SharedBudget
from ledger.models import ActRecord
from runs.models import Run
from runs.services import lifecycle
from tests.cases import each_case
from tests.contrib.limits.budgets import in_line, pool
from tests.integration.console.conftest import SHOP, Reader, agent, operator, reader  # noqa: F401 (fixtures)
from tests.integration.console.stage import settled, working
from tests.integration.runs.conftest import stage  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db


HOSTILE = "tool:<script>alert(1)</script>\u202e"


HOSTILE_NAME = "<img src=x onerror=alert(1)>"


def test_hostile_text_is_inert(operator: Reader, reader: Callable[..., Reader]) -> None:
    Limit.objects.create(key=HOSTILE, last_error="<img src=x onerror=alert(1)>", last_error_at="2026-01-01T00:00Z")
    page = operator.get("/limits").content.decode()
    assert "<script>alert" not in page and "<img src=x" not in page and "\u202e" not in page


def made(somebody: Reader, **changed: str) -> Any:
    given = {
        "name": "Research",
        "scope": "tag",
        "whose": "team:x",
        "resource": "usd",
        "limit": "500.00",
        "period": "month",
        "zone": "Europe/Berlin",
        "justification": "for the test",
    }
    return somebody.client.post("/shared-budgets/new", given | changed)


def test_a_pool_is_made_raised_and_switched_off_on_the_record(operator: Reader) -> None:
    assert made(operator).status_code == 302
    one = SharedBudget.objects.get()
    page = operator.read("/shared-budgets")
    assert "Research" in page and "team:x" in page and "$500.00" in page and "Europe/Berlin" in page
    given = {"limit": "600", "if_limit": "500.00", "justification": "more is needed"}
    assert operator.client.post(f"/shared-budgets/{one.id}/limits", given).status_code == 302
    assert BudgetMeter.objects.get().most == 600_000_000
    assert operator.client.post(f"/shared-budgets/{one.id}/limits", given | {"limit": "1"}).status_code == 409
    assert (
        operator.client.post(f"/shared-budgets/{one.id}/closings", {"justification": "it is over"}).status_code == 302
    )
    assert "Research" not in operator.read("/shared-budgets")
    values = ActRecord.objects.filter(subject=f"pool {one.id}").order_by("id").values_list("action", flat=True)
    assert list(values) == ["pool", "pool_change", "pool_off"]


@each_case(
    ("wrong", "word"),
    [
        ({"limit": "-1"}, "limit"),
        ({"zone": "Berlin"}, "not a time zone"),
        ({"name": ""}, "missing"),
        ({"justification": ""}, "ustification"),
        ({"stray": "x"}, "1 field that it"),
    ],
)
def test_a_refused_form_keeps_what_was_typed(operator: Reader, wrong: dict[str, str], word: str) -> None:
    answer = made(operator, **wrong)
    text = answer.content.decode()
    assert answer.status_code == 422 and "Not saved." in text and not SharedBudget.objects.exists()
    assert word in text and ("Research" in text or "name" in wrong)


@pytest.mark.django_db(transaction=True)
def test_a_hostile_name_is_inert_on_every_page(operator: Reader) -> None:
    pool(limit=0, name=HOSTILE_NAME)
    (run,) = waits()
    for path in ("/shared-budgets", f"/runs/{run.id}", "/reconcile", "/runs"):
        assert HOSTILE_NAME not in operator.get(path).content.decode(), path


def waits(n: int = 1) -> list[Run]:
    """Return runs that a real worker drove to a full pool."""
    runs = [lifecycle.start("buyer", {"item": "chairs", "ending": "unknown"}, by=SHOP) for _ in range(n)]
    with working():
        found = [settled(run, "waiting_event") for run in runs]
    assert all(in_line(run) for run in found)
    return found
