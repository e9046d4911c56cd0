"""The page of budgets that many runs share, what a run's page says of them, and the one entry among what waits for an
operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.models import ActRecord
from runs.models import Pool, PoolMeter, Run
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.console.conftest import SHOP, Reader
from tests.integration.console.stage import settled, working
from tests.integration.runs.sharing import in_line, pool

pytestmark = pytest.mark.django_db
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def operator(reader: Callable[..., Reader]) -> Reader:
    return reader("operator")


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
    return somebody.client.post("/pools/new", given | changed)


def test_a_pool_is_made_raised_and_switched_off_on_the_record(operator: Reader) -> None:
    assert made(operator).status_code == 302
    one = Pool.objects.get()
    page = operator.read("/pools")
    assert "Research" in page and "team:x" in page and "$500.00" in page and "Europe/Berlin" in page
    given = {"limit": "600", "if_limit": "500.00", "justification": "more is needed"}
    assert operator.client.post(f"/pools/{one.id}/limits", given).status_code == 302
    assert PoolMeter.objects.get().most == 600_000_000
    assert operator.client.post(f"/pools/{one.id}/limits", given | {"limit": "1"}).status_code == 409
    assert operator.client.post(f"/pools/{one.id}/closings", {"justification": "it is over"}).status_code == 302
    assert "Research" not in operator.read("/pools")
    told = ActRecord.objects.filter(subject=f"pool {one.id}").order_by("id").values_list("action", flat=True)
    assert list(told) == ["pool", "pool_change", "pool_off"]


@each_case(
    ("wrong", "word"),
    [
        ({"limit": "-1"}, "limit"),
        ({"limit": "much"}, "limit"),
        ({"zone": "Berlin"}, "no time zone"),
        ({"name": ""}, "missing"),
        ({"scope": "agent", "whose": "nobody"}, "nobody"),
        ({"justification": ""}, "ustification"),
        ({"stray": "x"}, "does not have"),
    ],
)
def test_what_can_t_be_is_refused_and_what_was_typed_is_kept(
    operator: Reader, wrong: dict[str, str], word: str
) -> None:
    answer = made(operator, **wrong)
    text = answer.content.decode()
    assert answer.status_code == 422 and "Not made." in text and not Pool.objects.exists()
    assert word in text and ("Research" in text or "name" in wrong)


@pytest.mark.django_db(transaction=True)
def test_a_hostile_name_is_inert_on_every_page(operator: Reader) -> None:
    pool(limit=0, name=HOSTILE)
    (run,) = waits()
    for path in ("/pools", f"/runs/{run.id}", "/reconcile", "/runs"):
        assert HOSTILE not in operator.get(path).content.decode(), path


def waits(n: int = 1) -> list[Run]:
    """Runs that a real worker drove up to a pool that had no room for them."""
    runs = [lifecycle.start("buyer", {"item": "chairs", "ending": "unknown"}, by=SHOP) for _ in range(n)]
    with working():
        found = [settled(run, "waiting_event") for run in runs]
    assert all(in_line(run) for run in found)
    return found
