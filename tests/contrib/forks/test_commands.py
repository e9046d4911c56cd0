"""`manage.py runs fork` and `runs start-again`: what the API does, from a shell on the server."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from ledger import events as e
from ledger.models import OverrideRecord
from runs.models import Run
from tests.contrib.forks.test_forks import orders
from tests.integration.runs.stage import Stage, events, fresh, head, problems
from tests.tampering import tamper
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db
WHY = "--justification=because it must be"


@pytest.fixture
def run(stage: Stage, tools: Toolbox) -> Run:
    run = stage.start(orders(tools, name="shell-orders"), text="ours")
    assert stage.settle(run) == "completed"
    return run


def said(*args: Any) -> tuple[int, str, str]:
    out, err, code = StringIO(), StringIO(), 0
    try:
        call_command("runs", *map(str, args), stdout=out, stderr=err)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def test_it_is_looked_at_first_and_then_forked(stage: Stage, run: Run, outside: Outside, tmp_path: Path) -> None:
    code, out, _ = said("fork", run.pk, "--look")
    assert code == 0 and [json.loads(line)["visit"] for line in out.splitlines()] == [1, 2]
    code, out, _ = said("fork", run.pk, "--look", "--visit", 2)
    first, *effects = map(json.loads, out.splitlines())
    assert (code, first["node"], [x["arguments"]["name"] for x in effects]) == (0, "order", ["a", "b"])
    assert Run.objects.count() == 1 and not OverrideRecord.objects.exists()
    code, out, err = said("fork", run.pk, "--visit", 2, "--if-effects", 2, WHY)
    made = Run.objects.get(pk=out.strip())
    assert code == 0 and (made.forked_from, made.fork_how) == (run.pk, "fork"), err
    record = OverrideRecord.objects.get()
    assert record.by.startswith("os:") and (record.action, record.justification) == ("fork", "because it must be")
    assert stage.settle(made) == "parked" and len(outside.executed("order")) == 2 and problems(made) == []


def test_a_run_is_started_again_with_the_audit_that_was_filled_in(
    stage: Stage, run: Run, outside: Outside, tmp_path: Path
) -> None:
    tamper("UPDATE ledger_event SET sealed = NULL WHERE run_id = %s AND kind = 'VisitEntered'", run.pk)
    code, out, _ = said("start-again", run.pk, "--look")
    data = json.loads(out)
    assert code == 0 and out.isascii() and [x["counts_as"] for x in data["effects"]] == ["", ""] and data["problems"]
    audit = tmp_path / "audit.json"
    audit.write_text(out)
    code, _, err = said("start-again", run.pk, "--audit", audit, WHY)
    assert code == 2 and "is not decided" in err and len(err.splitlines()) == 1
    data["effects"][0]["counts_as"], data["effects"][1]["counts_as"] = "happened", "unknown"
    audit.write_text(json.dumps(data))
    code, out, err = said("start-again", run.pk, "--audit", audit, WHY)
    assert code == 0, err
    made = Run.objects.get(pk=out.strip())
    assert stage.settle(made) == "parked" and len(outside.executed("order")) == 2
    assert [x.how for x in events(made, e.AnswerTakenOver)] == ["audit"]


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["fork", "{run}"], "--visit is missing"),
        (["fork", "{run}", "--visit", "9", WHY], "none of its visits"),
        (["fork", "{run}", "--visit", "2"], "justification"),
        (["fork", "{run}", "--visit", "2", "--if-effects", "1", WHY], "There are now 2"),
        (["fork", "{run}", "--visit", "2", "--onto", "9.9.9", WHY], "9.9.9"),
        (["start-again", "{run}", "--audit", "{here}/none.json", WHY], "cannot read"),
        (["fork", "nobody", "--look"], "isn't a run id"),
        (["fork", "00000000-0000-0000-0000-000000000000", "--look"], "no run"),
        (["start-again", "{run}", WHY], "is not decided"),
        (["start-again", "{run}", "--audit", "{here}/list.json", WHY], "is not what --look prints"),
        (["start-again", "{run}", "--audit", "{here}/typo.json", WHY], "count_as"),
        (["start-again", "{run}", "--audit", "{here}/bad.json", WHY], "is not JSON"),
        (["start-again", "{run}", "--visit", "1", "--if-effects", "7", WHY], "no option --visit, --if-effects"),
        (["start-again", "{run}", "--if-effects", "0", WHY], "Nothing was done"),
        (["start-again", "{run}", "--visit", "1", "--look"], "start-again has no option --visit"),
        (["fork", "{run}", "--visit", "2", "--audit", "{here}/typo.json", WHY], "no option --audit"),
        (["fork", "{run}", "--visit", "2", "--input", "{here}/typo.json", WHY], "fork has no option --input"),
    ],
)
def test_what_can_not_be_is_one_line_and_changes_nothing(run: Run, args: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"a": 1, "a": 2}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "typo.json").write_text('{"effects": [{"slot": "0.2/1", "attempt": 0, "count_as": "happened"}]}')
    before = head(run).seq
    code, out, err = said(*(each.format(run=run.pk, here=tmp_path) for each in args))
    assert (code, out) == (2, "") and says.lower() in err.lower() and len(err.splitlines()) == 1, err
    assert Run.objects.count() == 1 and head(run).seq == before and str(fresh(run).state) == "completed"
