"""The page of limits: what counts, how it stands, who waits; and what operators say there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.models import ActRecord
from runs.models import Limit
from tests.integration.console.conftest import Reader

pytestmark = pytest.mark.django_db
HOSTILE = "tool:<script>alert(1)</script>\u202e"


def test_an_operator_sets_resets_opens_and_closes_with_a_reason(operator: Reader) -> None:
    said = {"key": "tool:charge", "justification": "the other side says so"}
    assert "Nothing is limited" in operator.get("/limits").content.decode()
    assert operator.post("/limits/settings", **said, per_minute="60", at_once="4").status_code == 302
    page = operator.get("/limits").content.decode()
    assert "tool:charge" in page and "per_minute 60" in page and "at_once 4" in page
    assert operator.post("/limits/openings", **said, per_minute="").status_code == 302
    assert "by hand" in operator.get("/limits").content.decode()
    assert operator.post("/limits/closings", **said).status_code == 302
    assert operator.post("/limits/resets", **said).status_code == 302
    actions = ActRecord.objects.filter(subject="limit tool:charge").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["limit", "breaker_open", "breaker_close", "limit_reset"]


def test_hostile_text_is_inert(operator: Reader, reader: Callable[..., Reader]) -> None:
    Limit.objects.create(key=HOSTILE, last_error="<img src=x onerror=alert(1)>", last_error_at="2026-01-01T00:00Z")
    page = operator.get("/limits").content.decode()
    assert "<script>alert" not in page and "<img src=x" not in page and "\u202e" not in page
