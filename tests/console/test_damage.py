"""Whatever stands in a row, every page shows: a console that breaks on a broken run hides exactly the run that needs a
person."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from approvals.models import Approval
from ledger import events as e
from ledger.append import append
from ledger.models import Event, Head
from runs.console.run_views import TABS
from runs.models import Checkpoint, Run, State, Wait
from tests.conftest import CHECKOUT
from tests.console.conftest import OLGA, Reader, start, text_of
from tests.console.stage import question, settled, working

pytestmark = pytest.mark.django_db
DETAILS: list[Any] = [
    {},
    None,
    [],
    "words",
    7,
    {"title": None},
    {"title": "", "tool": ""},
    {"title": ["a"], "tool": {"b": 1}},
    {"reason": {}},
    {"retry": True},
]
KINDS = [*Wait.Kind.values, "moonrise"]
PAYLOADS: list[Any] = [
    None,
    {},
    [],
    "",
    "words",
    3,
    {"arguments": None},
    {"arguments": "x", "result": []},
    {"messages": 4},
    {"messages": [{"parts": 1}]},
]


@contextmanager
def other_hands() -> Iterator[Any]:
    """A database's superuser, past every trigger."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            yield cursor
        finally:
            cursor.execute("SET session_replication_role = origin")


def every_page(reader: Reader, *runs: Run) -> None:
    """Ask all pages that show these runs; none may break."""
    paths = [
        "/",
        "/inbox",
        "/inbox?show=decided",
        "/runs",
        "/reconcile",
        "/audit",
        "/fleet",
        "/fleet/recoveries",
        f"/agents/{runs[0].graph_id}",
    ]
    for run in runs:
        paths += [f"/runs/{run.id}?tab={tab}" for tab in TABS] + [
            f"/runs/{run.id}?scale=true",
            f"/runs/{run.id}?tab=journal&before=2",
        ]
    paths += [f"/inbox/{approval.id}" for approval in Approval.objects.filter(run__in=runs)]
    broken = {path: answer.status_code for path in paths if (answer := reader.get(path)).status_code != 200}
    assert broken == {}


def waiting(kind: str, detail: Any, state: State) -> Run:
    """A run that waits for something whose detail says this."""
    run = start()
    with other_hands() as cursor:
        cursor.execute("UPDATE runs_run SET state = %s, ready_at = NULL WHERE id = %s", [state, run.pk])
    opened = run.created_at
    wait = Wait.objects.create(
        id=uuid4(), run=run, slot="0.1/1", kind=kind, opened_at=opened, deadline=opened + timedelta(days=1)
    )
    with other_hands() as cursor:
        cursor.execute("UPDATE runs_wait SET detail = %s::jsonb WHERE id = %s", [json.dumps(detail), wait.pk])
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_wait_shows_whatever_its_detail_lacks(operator: Reader, kind: str) -> None:
    states = (State.WAITING_HUMAN, State.WAITING_TOOL, State.WAITING_EVENT)
    runs = [waiting(kind, detail, states[n % 3]) for n, detail in enumerate([*DETAILS, *DETAILS[:1]])]
    for run in runs:
        assert operator.get(f"/runs/{run.id}").status_code == 200, Wait.objects.get(run=run).detail
    every_page(operator, runs[0])


@pytest.mark.parametrize("state", [*State.values, "astray"])
def test_every_state_shows_without_a_journal_a_head_or_an_agent(operator: Reader, state: str) -> None:
    run = start()
    with other_hands() as cursor:
        cursor.execute("UPDATE runs_run SET state = %s, agent = 'gone', version = '9.9' WHERE id = %s", [state, run.pk])
    every_page(operator, Run.objects.get(pk=run.pk))
    with other_hands() as cursor:
        cursor.execute("DELETE FROM ledger_event WHERE run_id = %s", [run.pk])
    every_page(operator, Run.objects.get(pk=run.pk))
    Head.objects.filter(run_id=run.id).delete()
    every_page(operator, Run.objects.get(pk=run.pk))
    assert "has no head" in operator.read(f"/runs/{run.id}")


def example(kind: type[e.Event], payload: Any = None, slot: str = "0.1/1") -> e.Event:
    """An event of a kind with something of the right type in every field."""
    some = {"str": "x", "int": 1, "bool": True, "list[str]": ["x"], "str | None": None, "int | None": None}
    names = {
        name: some.get(str(hint), []) for name, hint in kind.__annotations__.items() if "ClassVar" not in str(hint)
    }
    return kind(slot=slot, payload=payload, **names)


@pytest.mark.parametrize("name", sorted(e.KINDS))
def test_every_kind_of_event_shows_whole_empty_and_damaged(operator: Reader, name: str) -> None:
    whole, damaged = start(), start()
    for n, payload in enumerate(PAYLOADS):
        event = example(e.KINDS[name], payload, f"0.1/{n}")
        if isinstance(event, e.RunMigrated):  # the database goes by it
            event = replace(event, of=whole.graph_id, to=whole.graph_id, generation=n + 1)
        append(whole.id, event, by=OLGA)
    odd = {field: {"odd": []} for field in example(e.KINDS[name]).clear()}
    for clear in (b"", b"[]", b"7", b"{}", b"not json", json.dumps({"kind": name, **odd}).encode()):
        tampered(damaged, name, clear)
    every_page(operator, whole, damaged)


@pytest.mark.parametrize("kind", ["MoonRose", "../../../etc/passwd", "x" * 3000, "a b", "<b>"])
def test_an_unknown_kind_of_event_shows(operator: Reader, kind: str) -> None:
    run = start()
    tampered(run, kind, b'{"kind":"MoonRose"}')
    every_page(operator, run)
    page = operator.get(f"/runs/{run.id}", tab="journal")
    assert "<b>" + kind not in page.content.decode()


@pytest.mark.parametrize(
    "sealed",
    [
        b"",
        b"\x07junk",
        b"\x00{",
        b"\x01junk",
        b"\x00" + b"[" * 90_000 + b"]" * 90_000,
        b"\x00" + b"[" * 900 + b"]" * 900,
    ],
)
def test_a_payload_that_can_not_be_read_shows_as_such(operator: Reader, sealed: bytes) -> None:
    runs = [start() for _ in range(3)]
    for run, kind in zip(runs, ("RunCreated", "ToolReturned", "ModelResponded"), strict=True):
        tampered(run, kind, json.dumps(example(e.KINDS[kind]).clear()).encode(), sealed)
        assert "unreadable" in operator.read(f"/runs/{run.id}", tab="journal")
    every_page(operator, *runs)


def test_a_damaged_event_is_named_and_tells_nothing(operator: Reader) -> None:
    run = start()
    tampered(run, "VisitEntered", b'{"kind":"VisitEntered","visit":1}')
    page = operator.read(f"/runs/{run.id}")
    assert re.search(r"Event 2 \( ?VisitEntered ?\) is damaged .* missing or not what it should be: node", page)


@pytest.mark.parametrize("reason", ["broken_journal", "unreadable_state", "non_determinism", ""])
def test_a_run_that_stopped_for_an_operator_shows(operator: Reader, reason: str) -> None:
    run = waiting("operator", {"reason": reason} if reason else {}, State.WAITING_HUMAN)
    for payload in (
        {"slot": 4, "recorded": {"call": 1}, "now": {"arguments": None}},
        {"recorded": [], "now": {}},
        None,
        "x",
    ):
        append(run.id, e.OperatorNeeded(reason=reason or "none", payload=payload), by=OLGA)
        assert operator.get(f"/runs/{run.id}").status_code == 200, payload
    every_page(operator, run)
    assert "Reconcile" in operator.read("/reconcile")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "plan",
    [
        b"",
        b"junk",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"evidence":7}',
        b'{"evidence":[1,{}],"arguments":"x","headline":[1]}',
        b"[" * 90_000,
    ],
)
def test_an_approval_whose_plan_is_damaged_shows_and_has_no_button(
    operator: Reader, reader: Callable[..., Reader], plan: bytes
) -> None:
    run = start()
    with working():
        settled(run, "waiting_human")
    approval = question(run)
    with other_hands() as cursor:
        cursor.execute("UPDATE approvals_approval SET plan = %s WHERE id = %s", [plan, approval.pk])
    every_page(operator, run)
    finance = reader("approver_finance")
    assert {finance.get(path).status_code for path in ("/", "/inbox", f"/inbox/{approval.id}")} == {200}
    if not plan.startswith(b'{"'):
        page = finance.get(f"/inbox/{approval.id}")
        assert b"data-verdict" not in page.content and "can't be read" in text_of(page)


@pytest.mark.parametrize("state", [b"", b"\x07", b"\x00[", b"\x00" + b"[" * 90_000, b"\x00[]"])
def test_a_damaged_checkpoint_shows(operator: Reader, state: bytes) -> None:
    run = start()
    Checkpoint.objects.create(
        run_id=run.id,
        seq=1,
        generation=1,
        node="x",
        visit=1,
        fingerprint="f",
        state=state,
        checksum=b"",
        at=run.created_at,
    )
    every_page(operator, run)


def tampered(run: Run, kind: str, clear: bytes, sealed: bytes | None = None) -> None:
    """An event put beside the journal by other hands."""
    with other_hands():
        Event.objects.create(
            run_id=run.id,
            seq=Event.objects.filter(run_id=run.id).count() + 1,
            epoch=0,
            at=run.created_at,
            kind=kind,
            slot="0.1/1",
            clear=clear,
            sealed=sealed,
            prev_hash=b"\x00" * 32,
            hash=b"\x00" * 32,
        )


def test_no_template_asks_for_what_may_be_missing_as_a_default() -> None:
    """A filter's argument that doesn't resolve is an error, where a variable that doesn't is only empty."""
    found = [
        path
        for path in (CHECKOUT / "templates").rglob("*.html")
        if re.search(r"\|default(_if_none)?:[a-z_]+\b[^\"']", path.read_text())
    ]
    assert found == []
