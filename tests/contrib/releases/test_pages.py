"""An agent's versions and its ramp on its page: display, actions, and refusals that keep the form."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from durableagents.contrib.releases.models import Ramp, VersionGate
from ledger.models import ActRecord
from runs.services import lifecycle
from tests.integration.console.conftest import Reader, reader  # noqa: F401 (fixture)
from tests.world import OLGA, SHOP, agent_of, ends_with, only_for_now

WHY = "as the release plan says"
NAME = "releasing"
RAMP = {
    "agent": NAME,
    "from_version": "1.0.0",
    "to_version": "2.0.0",
    "share": "12.5",
    "tags": "beta, tenant:acme",
    "failed": "5",
    "rejected": "none",
    "stopped": "5",
    "at_least": "20",
    "justification": WHY,
}


@pytest.fixture(autouse=True)
def two() -> Any:
    with only_for_now():
        for version in ("1.0.0", "2.0.0"):
            agent_of(ends_with(1), name=NAME, version=version)
        yield


@pytest.fixture
def operator(reader: Reader) -> Client:
    return reader("operator").client


def text(client: Client, path: str = f"/agents/{NAME}@2.0.0/versions") -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def test_the_page_tells_each_version_with_its_runs_and_closes_one(operator: Client) -> None:
    for version in ("1.0.0", "1.0.0", "2.0.0"):
        lifecycle.start(f"{NAME}@{version}", {}, by=SHOP)
    page = text(operator)
    assert "2 running" in page and "fewer than 10 of its runs have ended" in page and "no running worker has it" in page
    done = operator.post(f"/agents/{NAME}@2.0.0/closings", {"justification": WHY})
    assert done.status_code == 302 and VersionGate.objects.get().is_closed
    assert "closed" in text(operator) and WHY in text(operator)
    refused = operator.post(f"/agents/{NAME}@2.0.0/closings", {"justification": WHY})
    assert refused.status_code == 409 and b"is already closed to new starts" in refused.content
    assert operator.post(f"/agents/{NAME}@2.0.0/openings", {"justification": " "}).status_code == 422
    assert operator.post(f"/agents/{NAME}@2.0.0/openings", {"justification": WHY}).status_code == 302
    assert not VersionGate.objects.get().is_closed


def test_a_ramp_is_set_raised_halted_let_go_on_and_taken_back(operator: Client) -> None:
    assert operator.post(f"/agents/{NAME}@2.0.0/ramps", RAMP).status_code == 302
    ramp = Ramp.objects.get()
    assert (ramp.share, ramp.tags, ramp.bounds) == (
        1250,
        ["beta", "tenant:acme"],
        {"failed": 5, "rejected": None, "stopped": 5},
    )
    page = text(operator)
    assert "12.5 % of new runs" in page and "tenant:acme" in page and 'id="set-ramp"' not in page
    fields = {"share": "50", "revision": "1", "justification": WHY}
    assert operator.post(f"/ramps/{ramp.pk}/shares", fields).status_code == 302
    stale = operator.post(f"/ramps/{ramp.pk}/shares", fields | {"share": "60"})
    assert stale.status_code == 409 and b'value="60"' in stale.content
    figures = {"begun": 30, "failed": 9, "rejected": 0, "stopped": 0, "above": ["failed"]}
    Ramp.objects.update(state="halted", halted_at=timezone.now(), halted_by=figures)
    page = text(operator)
    assert "Halted automatically" in page and "9 failed" in page and "Raise share" not in page
    assert operator.post(f"/ramps/{ramp.pk}/resumptions", {"justification": WHY}).status_code == 302
    assert operator.post(f"/ramps/{ramp.pk}/rollbacks", {"justification": WHY}).status_code == 302
    assert "reverted" in text(operator) and 'id="set-ramp"' in text(operator)
    assert operator.post(f"/ramps/{ramp.pk}/completions", {"justification": WHY}).status_code == 409
    values = ActRecord.objects.order_by("n").values_list("action", flat=True)
    assert list(values) == ["ramp", "ramp_raise", "ramp_resume", "version_close", "ramp_rollback"]
    assert "ramp_rollback" in operator.get("/audit").content.decode() and OLGA


def test_who_may_only_read_sees_no_forms(reader: Reader) -> None:
    page = text(reader("auditor").client)
    assert "Versions" in page and "<form" not in page.partition('id="versions"')[2].partition("</section>")[0]
