"""Records that somebody put there past us, in values that nobody can read or that are no states: they are marked and
named, and take nothing from what stands beside them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection

from durableagents.identity.invitations import roles_of
from durableagents.models import Invitation
from ledger.clock import database_now
from ledger.models import FourEyes, Json, RuleChange
from ledger.verification.registers import verify_registers
from runs.models import Ramp, Run, Wait
from tests.integration.approvals.setup import boss, somebody
from tests.integration.approvals.test_damaged import HUGE, client_of
from tests.integration.approvals.test_genuine import busy, read
from tests.integration.runs.stories import as_superuser

__all__ = ["busy", "read"]
pytestmark = pytest.mark.django_db
SAID = {
    "huge": f'{{"x": {HUGE}}}',
    "deep": '{"x": ' * 3000 + "1" + "}" * 3000,
    "deeper than is shown": "[" * 300 + "]" * 300,
    "list": "[]",
    "text": '"x"',
    "null": "null",
    "strange state": '{"state": [1], "caps": 1, "context": 2, "batch": {}}',
}
said_so = pytest.mark.parametrize("said", SAID.values(), ids=SAID)


def put(table: str, **values: Any) -> int:
    """A row, as whoever has the application's rights in the database adds it."""
    columns, places = ", ".join(f'"{name}"' for name in values), ", ".join(["%s"] * len(values))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({columns}) VALUES ({places}) RETURNING id", list(values.values()))
        return int(cursor.fetchone()[0]) if table != "ledger_rulechange" else 0


def act(said: str, action: str, **more: Any) -> int:
    told = {
        "action": action,
        "subject": "x",
        "queue": "",
        "by": "user:fiona",
        "role": "operator",
        "auth": "session",
        "address": "",
        "justification": "forged",
        "before": said,
        "after": said,
        "at": "now",
    }
    return put("ledger_actrecord", **(told | more))


def override(said: str, run: Run, action: str = "pause") -> int:
    return put(
        "ledger_overriderecord",
        run_id=run.pk,
        action=action,
        by="user:fiona",
        role="operator",
        auth="session",
        address="",
        justification="forged",
        seq=2,
        chain=bytes(32),
        before=said,
        after=said,
        at="now",
    )


def decision(said: str, run: Run) -> int:
    asked = run.approvals.get()
    return put(
        "approvals_decision",
        approval_id=asked.pk,
        verdict="reject",
        plan_hash=asked.plan_hash,
        justification="forged",
        by="user:fiona",
        role="approver_finance",
        auth="session",
        address="",
        before=said,
        after=said,
        standing=said,
        proof=said,
        at="now",
        closes=False,
    )


def change(said: str) -> UUID:
    id = uuid4()
    put(
        "ledger_rulechange",
        id=id,
        family="policies",
        act="approvals.policies.acts.create",
        given=said,
        told=said,
        why="x",
        by="user:fiona",
        person=1,
        role="",
        auth="",
        address="",
        made_at="now",
        state="open",
        ended_by="",
        ended_why="",
    )
    return id


@said_so
def test_the_audit_lists_them_as_what_they_are_beside_what_people_did(
    busy: Run, read: Callable[[str], Any], said: str
) -> None:
    before = [row["id"] for row in read("/api/v1/audit").json()["results"]]
    ids = [f"act-{act(said, 'declare_dead')}", f"act-{act(said, 'start', run_id=busy.pk)}"]
    ids += [f"override-{override(said, busy)}", f"override-{override(said, busy, 'budget')}"]
    ids += [f"decision-{decision(said, busy)}"]
    page = read("/audit")
    assert page.status_code == 200 and page.content.decode().count("not genuine") == len(ids)
    rows = read("/api/v1/audit").json()["results"]
    assert {row["id"] for row in rows if row["is_genuine"] is False} == set(ids)
    assert [row["id"] for row in rows if row["id"] not in ids] == before
    paths = [f"/runs/{busy.pk}?tab=decisions", f"/inbox/{busy.approvals.get().pk}", "/audit?action=budget"]
    for path in (*paths, f"/audit/verification/{busy.pk}", "/api/v1/approvals"):
        assert read(path).status_code in (200, 404), path
    assert read(f"/api/v1/runs/{busy.pk}/overrides").status_code == 200


@said_so
def test_verification_names_each_and_goes_on_with_the_rest(busy: Run, read: Callable[[str], Any], said: str) -> None:
    ids = [act(said, each) for each in ("four_eyes", "rule_change", "halt", "ramp", "queue")]
    of_run, decided = override(said, busy), decision(said, busy)
    answer = read("/api/v1/verification")
    assert answer.status_code == 200 and read("/audit/verification").status_code == 200
    lists = {each["name"]: each for each in answer.json()["lists"]}
    for id in ids:
        assert any(problem.startswith(f"act record {id}, ") for problem in lists["acts"]["problems"]), id
    assert lists["accounts"]["holds"]
    (run,) = answer.json()["results"]
    assert any(f"override record {of_run} has no code" in problem for problem in run["problems"])
    assert any(f"decision {decided} has no event" in problem for problem in run["problems"])
    assert not any("made sense of" in problem for each in [run, *lists.values()] for problem in each["problems"])
    out = StringIO()
    with pytest.raises((CommandError, SystemExit)):
        call_command("ledger", "verify", "--all", stdout=out, stderr=out)
    assert f"act record {ids[-1]}" in out.getvalue()


@said_so
def test_lists_that_go_by_acts_bear_acts_that_say_no_state(busy: Run, said: str) -> None:
    """What is in force has its own row, and its act is somebody's forgery."""
    FourEyes.objects.create(n=1, families=["policies"], set_by="user:x", at="2026-11-26T00:00Z")
    ramp = Ramp.objects.create(
        agent="a",
        from_version="1",
        to_version="2",
        bounds={},
        least=1,
        share=5,
        set_by="user:x",
        made_at="2026-11-26T00:00Z",
    )
    proposed = change(said)
    for action, subject in (("four_eyes", "x"), ("rule_change", f"change {proposed}"), ("ramp", f"ramp {ramp.pk}")):
        act(said, action, subject=subject)
    found = {each.name: each.problems for each in verify_registers()}
    assert any("was not written by this installation" in each for each in found["changes of rules"])
    assert any(each.startswith(f"ramp {ramp.pk}") for each in found["releases"])
    assert not any("made sense of" in each for problems in found.values() for each in problems)


def test_a_list_that_nobody_can_make_sense_of_hides_no_other(busy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.verification import registers

    def every_oddity() -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(registers, "more", [every_oddity, *registers.more])
    act("{}", "queue")
    found = {each.name: each.problems for each in verify_registers()}
    assert found["every oddity"] == ["every oddity: a row can't be made sense of: RecursionError: too deep"]
    assert found["acts"] and found["accounts"] == []


@said_so
@pytest.mark.usefixtures("db")
def test_a_proposed_change_that_nobody_can_read_takes_no_list_away(said: str) -> None:
    change(said)
    admin = client_of(boss())
    row = RuleChange.objects.get()
    assert not row.is_genuine
    page = admin.get("/changes")
    assert page.status_code == 200 and "not genuine" in page.content.decode()
    assert admin.get(f"/changes/{row.pk}").status_code == 200
    (told,) = admin.get("/api/v1/changes").json()["results"]
    assert told["is_genuine"] is False and told["told"] == []


@said_so
def test_rows_that_people_are_listed_by_take_no_list_away(busy: Run, said: str) -> None:
    admin, olga = boss(), somebody("olga", "operator", "auditor")
    put(
        "approvals_channel",
        form="email",
        name="forged",
        address=b"",
        shown="x",
        kinds=said,
        set_by="x",
        made_at="now",
        changed_at="now",
    )
    notice = put(
        "approvals_notice",
        fact="forged",
        kind="decision",
        run_id=busy.pk,
        about="",
        at="now",
        state="over",
        note="",
        due_at="now",
    )
    put(
        "approvals_delivery",
        notice_id=notice,
        by="email",
        person=olga.person,
        state="sent",
        is_grouped=False,
        due_at="now",
        tries=said,
        note="",
        made_at="now",
    )
    put(
        "durableagents_invitation",
        username="eve",
        email="eve@example.com",
        roles=said,
        is_admin=False,
        token_hash=bytes(32),
        made_by="user:boss",
        maker=admin.person,
        made_at="now",
        expires_at="tomorrow",
    )
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET tags = %s", [said])
    paths = ["/", "/people", "/runs", f"/runs/{busy.pk}", "/notifications/channels", "/notifications/log"]
    paths += [
        f"/api/v1/{each}" for each in ("runs", f"runs/{busy.pk}", "notifications/deliveries", "notifications/channels")
    ]
    for by in (admin, olga):
        client = client_of(by)
        assert {path: status for path in paths if (status := client.get(path).status_code) not in (200, 302, 403)} == {}
    assert not roles_of(Invitation.objects.get()) and User.objects.filter(username="eve").count() == 0


@said_so
def test_waits_that_nobody_can_read_take_no_page_away(busy: Run, said: str) -> None:
    olga, fiona, now = somebody("olga", "operator", "auditor"), somebody("fiona", "approver_finance"), database_now()
    for kind in Wait.Kind.values:
        if kind != Wait.Kind.APPROVAL:
            id = uuid4()
            late = now + timedelta(days=1)
            Wait.objects.create(id=id, run=busy, slot=f"forged/{kind}", kind=kind, opened_at=now, deadline=late)
            as_superuser("UPDATE runs_wait SET detail = %s, lacking = %s WHERE id = %s", said, said, id)
    paths = ["/inbox", "/runs", f"/runs/{busy.pk}", f"/runs/{busy.pk}?tab=decisions"]
    paths += [f"/api/v1/{each}" for each in ("runs", f"runs/{busy.pk}", f"runs/{busy.pk}/why", "pools", "questions")]
    for by in (olga, fiona):
        client = client_of(by)
        assert {path: status for path in paths if (status := client.get(path).status_code) not in (200, 403, 404)} == {}


@pytest.mark.usefixtures("db")
def test_what_is_read_is_what_was_written_as_deep_as_we_write() -> None:
    field = Json()
    for levels, is_read in ((99, True), (101, False)):
        text = "[" * levels + "]" * levels
        assert (field.from_db_value(text, None, connection) is not None) is is_read
    assert field.from_db_value('{"a": [1, {"b": null}]}', None, connection) == {"a": [1, {"b": None}]}
