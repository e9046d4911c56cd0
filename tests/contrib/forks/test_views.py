from __future__ import annotations

import pytest

from durableagents.identity.auth import issue_key
from runs.models import Run
from runs.services import lifecycle
from tests.contrib.forks.test_forks import fork, orders
from tests.contrib.forks.test_start_again import tear
from tests.integration.api.conftest import Api, person
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage
from tests.tampering import tamper
from tests.unit.engine.undoings import Reversible, failing
from tests.world import OLGA, Outside, Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(orders(tools), text="ours")
    stage.settle(run)
    return run


def test_a_fork_is_made_from_its_page_and_both_pages_lead_to_the_other(
    stage: Stage, run: Run, olga: Reader, outside: Outside
) -> None:
    page = olga.get(f"/runs/{run.pk}/fork?visit=2").content.decode()
    assert "order:a" in page and "order:b" in page and "visit\n  1" in page
    made = olga.post(f"/runs/{run.pk}/forks", **{"visit": "2", "seen": "2", "justification": "once more"})
    fork = Run.objects.get(forked_from=run.pk)
    assert made.status_code == 302 and str(fork.pk) in made.headers["Location"]
    stage.settle(fork)
    page = olga.get(f"/runs/{fork.pk}").content.decode()
    assert 'id="forked-from"' in page and str(run.pk) in page and "do it again?" in page
    assert "is about to call order" in page and "order:a" in page, "what the origin did stands beside the question"
    assert "{&#x27;" not in page and "&amp;quot;" not in page, "arguments as JSON, escaped once"
    origin = olga.get(f"/runs/{run.pk}").content.decode()
    assert "Copied:" in origin and f"/runs/{fork.pk}" in origin, "the origin's page leads to it"
    assert str(fork.pk) in olga.get(f"/runs/{run.pk}?tab=journal").content.decode()
    wait = fork.waits.get(kind="input")
    name = f"q{wait.id.hex[:8]}"
    sent = olga.post(f"/runs/{fork.pk}/answers/{wait.pk}", **{f"{name}.decision": "take_what_is_on_record"})
    assert sent.status_code in (200, 302)


def test_what_is_refused_changes_nothing_and_is_told(run: Run, olga: Reader) -> None:
    for form in (
        {"visit": "7", "justification": "x y"},
        {"visit": "2", "state": "{}", "justification": "x y"},
        {"visit": "2"},
        {"visit": "2", "seen": "9", "justification": "x y"},
        {"visit": "2", "justification": "x y", "stray": "1"},
    ):
        refused = olga.post(f"/runs/{run.pk}/forks", **form)
        assert refused.status_code in (409, 422) and b"data-alert" in refused.content
    assert Run.objects.count() == 1
    assert olga.get(f"/runs/{run.pk}/fork?visit=9").status_code == 200
    assert "none of its visits" in olga.get(f"/runs/{run.pk}/fork?visit=9").content.decode()


def test_a_damaged_run_is_gone_through_and_started_again(stage: Stage, run: Run, olga: Reader) -> None:
    tear(run, "ToolRead")
    page = olga.get(f"/runs/{run.pk}/start-again").content.decode()
    assert "was changed" in page and "order:a" in page and "did not happen" in page
    undecided = olga.post(f"/runs/{run.pk}/new-starts", justification="its journal is damaged")
    assert undecided.status_code == 422 and b"is not decided" in undecided.content
    form = {"justification": "its journal is damaged"}
    for n, slot in enumerate(("0.2/1", "0.2/2")):
        form |= {f"e{n}-of": f"{run.pk} {slot} 0", f"e{n}": "happened"}
    stale = olga.post(f"/runs/{run.pk}/new-starts", **(form | {"e0-of": f"{run.pk} 0.9/9 0"}))
    assert stale.status_code == 422, "what was decided of another effect counts for none"
    assert olga.post(f"/runs/{run.pk}/new-starts", **form).status_code == 302
    made = Run.objects.get(forked_from=run.pk)
    assert made.fork_how == "start_again" and stage.settle(made) == "completed"


def test_the_page_of_a_living_run_says_that_it_was_begun_again(stage: Stage, tools: Toolbox, olga: Reader) -> None:
    run = stage.start(orders(tools, name="page-living"), text="wait")
    stage.settle(run)
    assert 'id="begun-again"' not in olga.get(f"/runs/{run.pk}").content.decode()
    made = fork(run, 1)
    page = olga.get(f"/runs/{run.pk}").content.decode()
    assert 'id="begun-again"' in page and f"/runs/{made.pk}" in page
    lifecycle.cancel(run.pk, by=OLGA, justification="the other one goes on")
    assert 'id="begun-again"' not in olga.get(f"/runs/{run.pk}").content.decode()


def test_a_fork_that_the_reader_may_not_see_is_not_named(stage: Stage, tools: Toolbox, olga: Reader) -> None:
    orders(tools)
    ina = person("ina", "integrator")
    started = Api(issue_key(ina, "test")).post("runs", {"agent": "fork-orders", "input": {"text": "wait"}}).json()
    run = Run.objects.get(pk=started["id"])
    stage.settle(run)
    made = fork(run, 1)
    for reader, is_told in ((olga, True), (Reader(ina), False)):
        page = reader.get(f"/runs/{run.pk}").content.decode()
        assert ("Copied:" in page, 'id="begun-again"' in page, str(made.pk) in page) == (is_told,) * 3


def test_each_visit_that_can_not_be_forked_says_why(stage: Stage, olga: Reader, outside: Outside) -> None:
    tools = Reversible(outside)
    undone = stage.start(failing(tools, [["book"], ["book"]], name="page-undone"))
    stage.settle(undone)
    page = olga.get(f"/runs/{undone.pk}/fork").content.decode()
    assert (
        "the state depends on effects that were undone since: book at 0.1/1" in page and "here it began to undo" in page
    )
    assert "?visit=1" in page and "?visit=2" not in page and "?visit=3" not in page
    tamper("UPDATE ledger_event SET clear = '\\xff00' WHERE run_id = %s AND kind = 'ToolInvoked'", undone.pk)
    page = olga.get(f"/runs/{undone.pk}/fork").content.decode()
    assert page.count("was changed: its content does not match its hash") >= 2 and "?visit=" not in page
