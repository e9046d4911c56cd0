"""A rejected idempotency key on the real record: verification, what people and programs read, what follows."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents import KeyRejected, TransportError
from ledger import events as e
from runs.api import present
from runs.models import Run
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, calling, events, facts, kinds, output, problems, waiting
from tests.world import Outside, Toolbox

SAID = "this key was used with <another> body"


@pytest.fixture
def run(stage: Stage, tools: Toolbox, outside: Outside) -> Run:
    outside.trouble("order", TransportError("cut"), when="after")
    outside.trouble("order", KeyRejected(SAID, details={"status": 422}))
    run = stage.start(calling(tools, "order"))
    assert stage.settle(run) == "parked"
    return run


def test_it_is_on_record_verifies_and_the_programs_read_why(run: Run) -> None:
    (unknown,) = events(run, e.ToolOutcomeUnknown)
    assert unknown.payload["key_rejected"]["details"] == {"status": 422}
    assert facts(run) == ["pending", "unknown"] and problems(run) == [] and str(run.state)
    (wait,) = present.load_run_row(run.id).waiting_for
    assert wait.kind == "reconcile"
    assert {k: wait.detail[k] for k in ("reason", "suspicion", "said")} == {
        "reason": "key_rejected",
        "suspicion": "duplicate",
        "said": SAID,
    }
    check_against_journal(run)


@pytest.mark.parametrize("path", ["/reconcile", "/runs/{run}"])
def test_the_pages_say_whom_to_suspect_and_draw_no_foreign_markup(run: Run, path: str) -> None:
    olga = User.objects.create_user("olga-reads")
    olga.groups.add(Group.objects.get(name="operator"))
    client = Client()
    client.force_login(olga)
    page = client.get(path.format(run=run.id)).content.decode()
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", page)))
    assert "The upstream system rejected its key" in text and "duplicate" in text
    assert "<another>" not in page and "<another>" in unescape(page)


@pytest.mark.parametrize(
    ("verdict", "receipt", "ends", "keys"),
    [("happened", {"ref": "in the books"}, "in the books", 1), ("did_not", None, "order:a", 2)],
)
def test_only_a_persons_word_makes_another_key(
    stage: Stage, outside: Outside, run: Run, verdict: str, receipt: Any, ends: str, keys: int
) -> None:
    stage.reconcile(run, verdict, receipt)
    assert stage.settle(run) == "completed" and output(run) == ends
    assert len({r.key for r in outside.seen("order") if r.key}) == keys
    assert problems(run) == [] and waiting(run) == [] and kinds(run).count("ToolReconciled") == 1
    check_against_journal(run)
