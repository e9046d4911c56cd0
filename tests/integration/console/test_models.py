"""Whom a run asks, on its page: shown with what was said, moved by operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ledger.models import OverrideRecord
from runs.models import Run
from runs.services import lifecycle
from tests.integration.api.worker import purchase_agent
from tests.integration.console.conftest import SHOP, Reader, text_of
from tests.integration.console.stage import settled, working

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "scripted:thinker"
WHY = "The first is down."


@pytest.fixture
def run() -> Iterator[Run]:
    with purchase_agent():
        made = lifecycle.start("purchase", {"item": "chair", "amount": 5}, by=SHOP)
        with working():
            settled(made, "waiting_tool")
        yield made


def test_the_transcript_says_whom_it_asks_and_operators_may_move_it(
    run: Run, operator: Reader, finance: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    page = operator.read(f"/runs/{run.pk}", tab="transcript")
    assert f"thinker {HERE} the installation, when the run first asked" in page and "Ask other models" in page
    assert "Ask other models" not in finance.read(f"/runs/{run.pk}", tab="transcript")
    form = {"models": f"openai:gpt-4.1 {HERE}", "assistant": "", "justification": WHY}
    assert finance.post(f"/runs/{run.pk}/models", **form).status_code == 403
    answer = operator.client.post(f"/runs/{run.pk}/models", form, follow=True)
    assert "It is on the record" in text_of(answer)
    assert f"openai:gpt-4.1 , {HERE}" in text_of(answer) and "user:operator" in text_of(answer)
    (record,) = OverrideRecord.objects.filter(run_id=run.pk)
    assert (record.action, record.justification) == ("models", WHY)
    assert WHY in operator.read(f"/runs/{run.pk}", tab="decisions") and "models" in operator.read("/audit")


def test_who_has_no_conversation_has_no_models(reader: Callable[..., Reader], operator: Reader) -> None:
    with purchase_agent():
        made = lifecycle.start("purchase", {"item": "chair", "amount": 5}, by=SHOP)
        assert "Whom it asks" not in operator.read(f"/runs/{made.pk}", tab="transcript")
