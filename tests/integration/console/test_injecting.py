"""The page on which an operator hands something to a run that goes on: a look, the act, what is refused and kept."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from runs.models import Run
from tests.integration.api.test_injecting import run
from tests.integration.console.conftest import Reader, reader  # noqa: F401 (fixture)
from tests.integration.runs.conftest import stage  # noqa: F401 (fixture)
from tests.integration.runs.stage import Stage, dump, fresh, kinds
from tests.integration.runs.test_injecting import WHY, asks, deal
from tests.world import only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["run"]  # fixtures
FORM = {"patch": '{"terms": {"price": 12}, "name": "<b>tin</b>"}', "justification": ""}


@pytest.fixture
def operator(reader: Reader) -> Client:  # noqa: F811
    return reader("operator").client


def hidden(page: str) -> dict[str, str]:
    return {name: re.search(f'name="{name}" value="([^"]*)"', page)[1] for name in ("seq", "head")}  # type: ignore[index]


def test_a_look_shows_what_would_change_and_the_act_is_offered_after_it(operator: Client, run: Run) -> None:
    assert f"/runs/{run.id}/context" in operator.get(f"/runs/{run.id}").content.decode()
    page = operator.get(f"/runs/{run.id}/context").content.decode()
    assert "terms.price" in page and "Resume with it" not in page and "signal go at 0.1/1" in page
    before = dump()
    seen = operator.post(f"/runs/{run.id}/context/looks", FORM).content.decode()
    assert "What would change" in seen and "Resume with it" in seen and dump() == before
    assert "<b>tin</b>" not in seen and "&lt;b&gt;tin&lt;/b&gt;" in seen
    done = operator.post(f"/runs/{run.id}/context/resumptions", FORM | hidden(seen) | {"justification": WHY})
    assert done.status_code == 302 and kinds(run)[-2:] == ["ContextInjected", "RunResumed"]
    assert fresh(run).state == "waiting_event"
    page = operator.get(f"/runs/{run.id}").content.decode()
    assert "something was handed to it" in page
    assert "the node has it after call 1" in operator.get(f"/runs/{run.id}?tab=journal").content.decode()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"patch": "{"}, "not JSON"),
        ({"patch": '{"terms": {"price": 0}}'}, "terms.price"),
        ({"patch": ""}, "Nothing is handed over"),
        ({"patch": "[1]"}, "patch"),
        ({"stray": "x"}, "does not have"),
    ],
)
def test_what_is_refused_keeps_what_was_typed(operator: Client, run: Run, more: dict[str, str], words: str) -> None:
    before = dump()
    answer = operator.post(f"/runs/{run.id}/context/looks", FORM | more)
    text = answer.content.decode()
    assert answer.status_code == 422 and words in text and dump() == before and "data-refused" in text


def test_whom_it_can_not_be_handed_to_is_said(operator: Client, stage: Stage) -> None:  # noqa: F811
    with only_for_now():
        run = stage.start(deal(asks))
        page = operator.get(f"/runs/{run.id}/context")
        assert page.status_code == 200 and "Only a run that is paused" in page.content.decode()
