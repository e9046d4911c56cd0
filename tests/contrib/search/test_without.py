"""Without the app, lists work, searches are refused, and attributes are recorded all the same."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from ledger.models import Event
from runs import features
from tests.contrib.search.test_api import Sell, found, found_agent, sell
from tests.integration.api.conftest import Api, is_problem, person
from tests.integration.console.conftest import Reader

__all__ = ["found_agent", "sell"]


@pytest.fixture(autouse=True)
def left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {name: each for name, each in features.installed.items() if name != "search"}
    monkeypatch.setattr(features, "installed", rest)


def test_lists_have_no_search_and_refuse_one(sell: Sell, auditor: Api) -> None:
    run = sell(customer="ACME", score=2)
    assert found(auditor) == found(auditor, sort="-created_at") == found(auditor, state="pending") == [run]
    for value in ({"q": "chair"}, {"where": "score = 2"}, {"sort": "score"}):
        answer = auditor.get("runs", **value)
        assert is_problem(answer, 400, "bad-search") and answer.json()["errors"][0]["field"] in value, answer.content
    assert auditor.get(f"runs/{run}").json()["attributes"] == {}
    assert Event.objects.filter(run_id=run, kind="AttributesSet").exists()
    printed = StringIO()
    call_command("runs", stdout=printed)
    assert run in printed.getvalue()


def test_pages_have_no_search_field(sell: Sell) -> None:
    run, reader = sell(customer="ACME"), Reader(person("arthur", "auditor"))
    pages = {path: reader.get(path).content.decode() for path in ("/runs", "/runs?q=chair", "/inbox", f"/runs/{run}")}
    assert [path for path, page in pages.items() if 'name="q"' in page or 'name="where"' in page] == []
    assert run in pages["/runs"] and run not in pages["/runs?q=chair"]
    assert "no app in INSTALLED_APPS searches runs" in pages["/runs?q=chair"]
