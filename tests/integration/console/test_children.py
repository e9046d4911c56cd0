"""Child runs, continuations and models on the console."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.models import OverrideRecord
from runs.models import Run
from runs.services import continuation, lifecycle, signals
from tests.integration.api.family import children, family
from tests.integration.api.going import going_on
from tests.integration.api.worker import purchase_agent
from tests.integration.console.conftest import SHOP, Reader, text_of
from tests.integration.console.stage import settled, until, working
from tests.integration.scale.test_reads import MAX_STATEMENTS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def grown() -> Iterator[Callable[..., Run]]:
    """Return a function that starts a run for these letters and waits for a state; a worker drives all runs."""

    def grow(letters: str, agent: str = "parent", state: str = "waiting_event", title: str = "Spring order") -> Run:
        return settled(lifecycle.start(agent, {"letters": letters, "title": title}, by=SHOP), state)

    with family(), working():
        yield grow


def ready(run: Run, **wanted: int) -> None:
    until(lambda: all(len(children(run, state)) == n for state, n in wanted.items()), f"children {wanted}")
    until(lambda: not Run.objects.filter(parent=run.pk, ended_at__isnull=False, is_told=False).exists(), "told")
    settled(run, "waiting_event", "completed")


def rows(page: str, of: str = "child") -> list[str]:
    return re.findall(rf'id="{of}-([0-9a-f-]{{36}})"', page)


def html(reader: Reader, path: str, **query: Any) -> str:
    return str(reader.get(path, **query).content.decode())


def test_a_parent_shows_children_that_need_a_person_first(grown: Callable[..., Run], operator: Reader) -> None:
    run = grown("fsax")
    ready(run, failed=1, waiting_event=1, waiting_human=1, completed=1)
    page, text = html(operator, f"/runs/{run.pk}"), operator.read(f"/runs/{run.pk}")
    assert "waiting for child runs" in text
    for value in ("1 waiting for people", "1 waiting for systems", "1 failed", "1 completed", "All 4"):
        assert value in text, value
    listed = rows(page)
    assert len(listed) == 4 and listed[0] == str(children(run, "waiting_human")[0].pk)
    assert listed[1] == str(children(run, "waiting_event")[0].pk)
    assert "One of them needs an answer" in text
    assert f'href="/runs?parent={run.pk}&amp;state=failed"' in page


def test_a_child_links_the_run_that_started_it(grown: Callable[..., Run], operator: Reader) -> None:
    run = grown("s")
    ready(run, waiting_event=1)
    (child,) = children(run, "waiting_event")
    page = html(operator, f"/runs/{child.pk}")
    assert f"as step <code>{child.parent_slot}</code>" in page and f'href="/runs/{run.pk}"' in page
    assert 'id="children"' not in page and 'id="parent"' not in html(operator, f"/runs/{run.pk}")
    Run.objects.filter(pk=child.pk).update(parent=uuid4())
    assert "a run that no longer exists" in operator.read(f"/runs/{child.pk}")


@pytest.mark.needs("search")
def test_lists_mark_children_and_show_those_of_one_run(grown: Callable[..., Run], operator: Reader) -> None:
    run, other = grown("fsa"), grown("x", state="completed")
    ready(run, failed=1, waiting_event=1, waiting_human=1)
    page = html(operator, "/runs")
    assert page.count("child of") == 4 and page.count(f'<a href="/runs/{run.pk}"><code>') == 3
    assert "One of them needs an answer" in text_of(operator.get("/runs"))
    every = [str(pk) for pk in Run.objects.filter(parent=run.pk).order_by("-created_at").values_list("pk", flat=True)]
    assert rows(html(operator, "/runs", parent=run.pk), "row") == every
    text = operator.read("/runs", parent=run.pk)
    assert "Children of run" in text and "all 3" in text and "failed 1" in text
    failed = html(operator, "/runs", parent=run.pk, state="failed")
    assert rows(failed, "row") == [str(children(run, "failed")[0].pk)]
    assert f'<input type="hidden" name="parent" value="{run.pk}">' in failed
    assert rows(html(operator, "/runs", parent=run.pk, q="helper", agent="helper"), "row") == []
    assert len(rows(html(operator, "/runs", parent=run.pk, q="Spring", agent="helper"), "row")) == 3
    assert rows(html(operator, "/runs", parent=children(run, "failed")[0].pk), "row") == []
    assert "match these filters" in operator.read("/runs", parent=str(uuid4()))
    for made_up in ("rubbish", "\x00", "1" * 300):
        assert len(rows(html(operator, "/runs", parent=made_up), "row")) == 6
    assert len(children(other, "completed")) == 1


def test_someone_who_stops_a_run_is_told_what_becomes_of_its_children(
    grown: Callable[..., Run], operator: Reader
) -> None:
    run = grown("fss")
    ready(run, failed=1, waiting_event=2)
    text = operator.read(f"/runs/{run.pk}")
    assert "2 child runs are active: paused and resumed together with it." in text
    assert "2 child runs are active: cancelled with it." in text
    operator.post(f"/runs/{run.pk}/pauses", justification="Look at it first.")
    text = operator.read(f"/runs/{run.pk}")
    assert "2 paused" in text and "resumed with it, except those paused separately" in text
    operator.post(f"/runs/{run.pk}/cancellations", justification="Not wanted any more.")
    text = operator.read(f"/runs/{run.pk}")
    assert "2 cancelled" in text and "are active" not in text


def test_a_page_of_a_family_costs_no_more_statements(grown: Callable[..., Run], operator: Reader) -> None:
    top = grown("fsa", agent="top")
    (middle,) = until(lambda: children(top, "waiting_event"), "the one between")
    ready(middle, failed=1, waiting_event=1, waiting_human=1)
    for path in ("/", "/runs", f"/runs?parent={middle.pk}", f"/runs?parent={middle.pk}&q=spring", f"/runs/{middle.pk}"):
        operator.client.get(path)
        with CaptureQueriesContext(connection) as found:
            assert operator.client.get(path).status_code == 200
        items = [query["sql"][:150] for query in found.captured_queries]
        # A run's page also asks who has its version, and whether it or its children have effects to undo.
        more = 2 if path.startswith("/runs/") else 0
        assert len(items) <= MAX_STATEMENTS + more, (path, "\n".join(items))


@pytest.fixture
def old() -> Iterator[Run]:
    """A keeper that has continued as new once."""
    with going_on(), working():
        run = settled(lifecycle.start("keeper", {"letters": "", "title": "<b>Shop"}, by=SHOP), "waiting_event")
        signals.signal(run.pk, "go", "a", by=SHOP)
        until(lambda: Run.objects.filter(came_from=run.pk, state="waiting_event").exists(), "its heir")
        yield run


def test_each_page_leads_to_the_other(old: Run, operator: Reader) -> None:
    new = continuation.newest(old.pk)
    page, text = operator.get(f"/runs/{old.pk}").content.decode(), operator.read(f"/runs/{old.pk}")
    assert "renewed" in text and f'href="/runs/{new.pk}"' in page and "which also gets its messages" in text
    assert "/pauses" not in page and "/retries" not in page, "what has gone on is not steered here"
    page, text = operator.get(f"/runs/{new.pk}").content.decode(), operator.read(f"/runs/{new.pk}")
    assert f'href="/runs/{old.pk}"' in page and "Continues run" in text and "number 2 in the chain" in text
    journal = operator.read(f"/runs/{new.pk}", tab="journal")
    assert "renewal of" in journal and "<b>Shop" not in page


def test_the_list_marks_what_has_gone_on(old: Run, operator: Reader) -> None:
    for letter in "bc":
        signals.signal(old.pk, "go", letter, by=SHOP)
    until(lambda: Run.objects.filter(agent="desk", state="completed").exists(), "the desk")
    text = operator.read("/runs", state="done")
    assert text.count("ontinues as") == 3 and "handed off" in text and text.count("renewed") >= 2


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
    assert f"thinker {HERE} default" in page and "Change models" in page
    assert "Change models" not in finance.read(f"/runs/{run.pk}", tab="transcript")
    form = {"models": f"openai:gpt-4.1 {HERE}", "assistant": "", "justification": WHY}
    assert finance.post(f"/runs/{run.pk}/models", **form).status_code == 403
    answer = operator.client.post(f"/runs/{run.pk}/models", form, follow=True)
    assert "Models changed." in text_of(answer)
    assert f"openai:gpt-4.1 , {HERE}" in text_of(answer) and "user:operator" in text_of(answer)
    (record,) = OverrideRecord.objects.filter(run_id=run.pk)
    assert (record.action, record.justification) == ("models", WHY)
    assert WHY in operator.read(f"/runs/{run.pk}", tab="decisions") and "models" in operator.read("/audit")


def test_who_has_no_conversation_has_no_models(reader: Callable[..., Reader], operator: Reader) -> None:
    with purchase_agent():
        made = lifecycle.start("purchase", {"item": "chair", "amount": 5}, by=SHOP)
        assert "Change models" not in operator.read(f"/runs/{made.pk}", tab="transcript")
