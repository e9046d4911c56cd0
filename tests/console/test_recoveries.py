"""The console's page of recoveries, and the way there."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.api.test_incidents import lose
from tests.console.conftest import Reader, start

pytestmark = pytest.mark.django_db


def test_the_fleet_page_leads_to_them(operator: Reader) -> None:
    assert "none so far" in operator.read("/fleet")
    lose(str(start().id))
    assert "the last one" in operator.read("/fleet") and b"/fleet/recoveries" in operator.get("/fleet").content


def test_each_says_why_where_and_what_became_of_its_calls(operator: Reader) -> None:
    run = start()
    lose(str(run.id), call="write", cause="host_gone", host="lost.example")
    page = operator.read("/fleet/recoveries")
    for words in ("host gone", "pid 42 on lost.example", "intent durable", "3 outcomes on record", "write open", "epoch 1"):
        assert words in page, words
    assert f"/runs/{run.id}#tl-1".encode() in operator.get("/fleet/recoveries").content


def test_filters_and_pages_live_in_the_address(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from runs.views_agents import RecoveriesPage

    monkeypatch.setattr(RecoveriesPage, "shown", 2)
    run = str(start().id)
    for seq in range(1, 6):
        lose(run, seq, host="here" if seq < 5 else "there")
    assert operator.read("/fleet/recoveries").count("pid 42") == 2
    assert operator.read("/fleet/recoveries", host="there").count("pid 42") == 1
    assert "No recovery fits" in operator.read("/fleet/recoveries", run="not an id")
    assert "No recovery fits" in operator.read("/fleet/recoveries", run=str(UUID(int=1)))
    assert b"cause=proof" in operator.get("/fleet/recoveries", cause="proof", before="4").content


def test_hostile_names_are_only_text(operator: Reader) -> None:
    lose(str(start().id), host="<script>x</script>", call="<img src=x>")
    raw = operator.get("/fleet/recoveries").content
    assert b"<script>x" not in raw and b"<img" not in raw
