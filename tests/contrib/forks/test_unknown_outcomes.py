from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durableagents.contrib.forks import forking
from durableagents.contrib.forks.forking import ForkRequest
from ledger import events as e
from runs.models import Run, Wait
from tests.contrib.forks.test_commands import said
from tests.contrib.forks.test_start_again_unknown import lose
from tests.integration.api.conftest import Api, is_problem
from tests.integration.console.conftest import Reader
from tests.integration.runs.aging import all_earlier
from tests.integration.runs.stage import Stage, calling, events
from tests.world import OLGA, Outside, Toolbox

pytestmark = pytest.mark.django_db
WHY = "it went wrong"


@pytest.fixture
def run(stage: Stage, tools: Toolbox, settings: Any) -> Run:
    """A failed run whose lost worker may have sent its letter an hour ago."""
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(
        update={"database_url": "postgresql://a.server.for.many/"}
    )
    run = stage.start(calling(tools, "mail"))
    lose(stage, run)
    all_earlier(run.pk, timedelta(hours=1))
    return run


def is_attested(run: Run) -> bool:
    made = Run.objects.get(forked_from=run.pk)
    return "on lost.example is gone" in events(made, e.RunForked)[0].payload["attested"][0]


def test_over_http(run: Run, operator: Api) -> None:
    fields = {"slot": "0.1/1", "counts_as": "did_not"}
    refused = operator.post(f"runs/{run.pk}/start-again", {"justification": WHY, "audit": [fields]})
    assert is_problem(refused, 422) and b"sender_is_gone" in refused.content and not Run.objects.exclude(pk=run.pk)
    made = operator.post(
        f"runs/{run.pk}/start-again", {"justification": WHY, "audit": [fields | {"sender_is_gone": True}]}
    )
    assert made.status_code == 201 and is_attested(run)


def test_on_the_page(run: Run, olga: Reader) -> None:
    page = olga.get(f"/runs/{run.pk}/start-again").content.decode()
    assert 'name="e0-gone"' in page and "Two people settle" not in page
    form = {"e0-of": f"{run.pk} 0.1/1 0", "e0": "did_not", "justification": WHY}
    refused = olga.post(f"/runs/{run.pk}/new-starts", **form)
    assert refused.status_code == 422 and b"Make sure that none of its processes is still" in refused.content
    assert olga.post(f"/runs/{run.pk}/new-starts", **(form | {"e0-gone": "on"})).status_code == 302
    assert is_attested(run)


def test_on_a_shell(run: Run, tmp_path: Path) -> None:
    data = json.loads(said("start-again", run.pk, "--look")[1])
    audit = tmp_path / "audit.json"
    for gone, code in ((False, 2), (True, 0)):
        data["effects"][0] |= {"counts_as": "did_not", "sender_is_gone": gone}
        audit.write_text(json.dumps(data))
        assert said("start-again", run.pk, "--audit", audit, "--justification", WHY)[0] == code
    assert is_attested(run)


def test_at_the_call_of_a_fork(stage: Stage, run: Run, operator: Api, olga: Reader, outside: Outside) -> None:
    made = forking.fork(run.pk, ForkRequest(1), by=OLGA, justification=WHY)
    assert stage.drive() == "parked"
    wait = Wait.objects.get(run=made.pk, kind="input")
    assert "Its sender is gone" in olga.get(f"/runs/{made.pk}").content.decode()
    at = f"runs/{made.pk}/answers/{wait.pk}"
    refused = operator.post(at, {"answer": {"decision": "do_it_again"}})
    assert is_problem(refused, 409) and b"sender_is_gone" in refused.content and outside.executed("mail") == []
    assert operator.post(at, {"answer": {"decision": "do_it_again", "sender_is_gone": True}}).status_code == 200
    assert stage.drive() == "completed" and len(outside.executed("mail")) == 1
