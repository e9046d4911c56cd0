"""Migrating runs on their page: preview, the action, and refusals that keep the form."""

from __future__ import annotations

import pytest
from django.test import Client

from ledger.models import OverrideRecord
from runs.models import Run
from runs.services import lifecycle
from tests.cases import each_case
from tests.contrib.releases.test_api_migrations import NAME, two, versions
from tests.integration.console.conftest import Reader, reader  # noqa: F401 (fixture)
from tests.world import SHOP

__all__ = ["two"]  # fixture
PAGE = f"/agents/{NAME}@1.0.0/migrations"
FORM = {
    "from_version": "1.0.0",
    "to_version": "2.0.0",
    "nodes": "finish = finish",
    "runs": "",
    "node": "",
    "limit": "2",
}
WHY = "the old one is wrong"


@pytest.fixture
def operator(reader: Reader) -> Client:
    return reader("operator").client


@pytest.fixture
def runs() -> list[Run]:
    return [lifecycle.start(f"{NAME}@1.0.0", {}, by=SHOP) for _ in range(3)]


def test_the_page_proposes_where_each_node_leads_and_a_look_changes_nothing(operator: Client, runs: list[Run]) -> None:
    page = operator.get(f"{PAGE}?run={runs[0].id}").content.decode()
    assert "finish = finish" in page and str(runs[0].id) in page and "Move runs</button>" not in page
    seen = operator.post(f"{PAGE}/looks", FORM).content.decode()
    assert seen.count("unbegun") == 2 and "Preview" in seen and "Move runs</button>" in seen
    assert versions() == ["1.0.0"] * 3


def test_runs_are_moved_after_a_look(operator: Client, runs: list[Run]) -> None:
    done = operator.post(f"{PAGE}/acts", FORM | {"justification": WHY})
    text = done.content.decode()
    assert done.status_code == 200 and "2 runs moved to 2.0.0, 0 not." in text and text.count(">moved<") == 2
    assert versions() == ["2.0.0", "2.0.0", "1.0.0"]
    assert OverrideRecord.objects.filter(action="migrate").count() == 2
    again = operator.post(f"{PAGE}/acts", FORM | {"justification": WHY, "runs": str(runs[0].id)}).content.decode()
    assert f"it already has version {NAME}@2.0.0" in again and "0 runs moved to 2.0.0, 1 not." in again
    page = operator.get(f"/runs/{runs[0].id}").content.decode()
    assert f"{NAME}@2.0.0" in page and f"moved to {NAME}@2.0.0" in page
    journal = operator.get(f"/runs/{runs[0].id}?tab=journal").content.decode()
    assert f"{NAME}@1.0.0 → {NAME}@2.0.0" in journal


@each_case(
    ("change", "said"),
    [
        ({"nodes": "finish"}, "lengthen it"),
        ({"nodes": "other = finish"}, "finish: is missing"),
        ({"runs": "no id"}, "runs"),
        ({"limit": "many"}, "limit"),
        ({"x": "1"}, "a field of this form"),
        ({"justification": " "}, "justification"),
    ],
)
def test_a_refusal_is_named_and_kept(operator: Client, runs: list[Run], change: dict[str, str], said: str) -> None:
    refused = operator.post(f"{PAGE}/acts", FORM | {"justification": WHY} | change)
    assert refused.status_code == 422 and said in refused.content.decode()
    assert versions() == ["1.0.0"] * 3
    if "nodes" in change:
        assert change["nodes"].splitlines()[0] in refused.content.decode(), "what was typed is still there"


def test_only_an_operator_sees_the_form_and_an_unknown_version_has_no_page(
    reader: Reader,
    operator: Client,
    runs: list[Run],
) -> None:
    assert "Look</button>" not in reader("auditor").client.get(PAGE).content.decode()
    assert reader("integrator").client.post(f"{PAGE}/acts", FORM | {"justification": WHY}).status_code == 403
    assert operator.get(f"/agents/{NAME}@7.0.0/migrations").status_code == 404
    assert operator.get("/agents/nobody@1.0.0/migrations").status_code == 404
    other = FORM | {"justification": WHY, "from_version": "2.0.0", "to_version": "1.0.0"}
    assert operator.post(f"{PAGE}/acts", other).status_code == 404
