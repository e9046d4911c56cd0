"""The page of limits: what counts, how it stands, who waits; and what operators say there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.models import ActRecord
from runs.models import Limit
from tests.console.conftest import Reader

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


@pytest.mark.parametrize(
    "typed",
    [
        {"key": "charge", "per_minute": "60"},
        {"key": "tool:charge", "per_minute": "many"},
        {"key": "tool:charge", "at_once": "0"},
        {"key": "tool:charge", "weight": "3"},
        {"key": ""},
        {"key": "tool:charge", "at_once": "3", "justification": ""},
        {"key": "tool:charge", "stray": "1"},
    ],
    ids=["no key", "no number", "none", "not its own", "empty", "no reason", "stray"],
)
def test_what_can_not_be_is_refused_and_kept(operator: Reader, typed: dict[str, str]) -> None:
    answer = operator.post("/limits/settings", **({"justification": "because I say so"} | typed))
    page = answer.content.decode()
    assert answer.status_code in (400, 422) and "Not done" in page and not Limit.objects.exists()
    assert all(f'value="{typed[name]}"' in page for name in ("key", "per_minute") if typed.get(name))


def test_hostile_text_is_inert(operator: Reader, reader: Callable[..., Reader]) -> None:
    Limit.objects.create(key=HOSTILE, last_error="<img src=x onerror=alert(1)>", last_error_at="2026-01-01T00:00Z")
    page = operator.get("/limits").content.decode()
    assert "<script>alert" not in page and "<img src=x" not in page and "\u202e" not in page


def test_a_number_that_is_none_is_told_at_its_field(operator: Reader) -> None:
    sent = {"key": "tool:charge", "per_minute": "-5", "at_once": "٣", "justification": "for the test"}
    answer = operator.post("/limits/settings", **sent)
    page = answer.content.decode()
    assert answer.status_code == 422 and 'id="l-per_minute_error"' in page and 'id="l-at_once_error"' in page
    assert 'value="-5"' in page and not Limit.objects.filter(key="tool:charge").exists()
