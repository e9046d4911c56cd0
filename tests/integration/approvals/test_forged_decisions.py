"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client

from approvals import trail
from approvals.models import Approval, Decision
from approvals.queue_models import Limit, Queue
from approvals.queues import acts
from approvals.queues import acts as queue_acts
from approvals.queues.acts import ProofBody, QueueChangeBody
from approvals.services import AlreadyDecided, decide
from durableagents import Context, End
from ledger.actors import Actor
from ledger.append import acted
from ledger.clock import database_now
from ledger.models import Json
from ledger.verification.registers import verify_registers
from ledger.web.roles import is_role
from runs.journal.asked.queues import QUEUES
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem, issue_key
from tests.integration.approvals.setup import WHY, asked, boss, limited, say, signed_in, somebody
from tests.integration.approvals.test_amending import paying
from tests.integration.approvals.test_stages import FINANCE, forged
from tests.integration.approvals.timing import make_late, sweep
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage, events
from tests.tampering import run_sql, tamper
from tests.world import FIONA, OLGA, SHOP, Item, Notes, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]
HUGE = "9" * 5000  # more digits than Python reads


def reads(by: Actor) -> Reader:
    return Reader(User.objects.get(pk=by.person))


def calls(by: Actor) -> Api:
    return Api(issue_key(User.objects.get(pk=by.person), uuid4().hex))


def test_an_expired_question_was_decided_by_nobody_whatever_a_row_says(stage: Stage, tools: Toolbox) -> None:
    approval, fiona, frank = asked(stage, tools), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    make_late(approval)
    sweep()
    forged(approval, fiona, closes=True, person=None, at=database_now())
    page = reads(frank).read(f"/inbox/{approval.id}")
    assert "Expired. not authentic A decision by user:fiona" in page and "It has no effect" in page
    assert "Expired by user:fiona" not in page and "Deadline missed." in page
    row = calls(frank).get(f"approvals/{approval.id}").json()
    assert (row["state"], row["decision"]["is_authentic"]) == ("expired", False)
    with pytest.raises(AlreadyDecided) as no:
        say(approval, frank)
    assert "fiona" not in no.value.detail


def test_what_was_decided_is_authentic_and_says_no_more_than_it_did(stage: Stage, tools: Toolbox) -> None:
    approval, fiona = asked(stage, tools), somebody("fiona", FINANCE)
    say(approval, fiona)
    page = reads(fiona).read(f"/inbox/{approval.id}")
    assert "not authentic" not in page and "Approved by user:fiona as" in page
    assert calls(fiona).get(f"approvals/{approval.id}").json()["decision"]["is_authentic"] is True
    with pytest.raises(AlreadyDecided, match="approved by user:fiona"):
        say(approval, somebody("frank", FINANCE))


@pytest.mark.parametrize(
    "said",
    [
        {"verdict": "approve"},
        {"verdict": "reject"},
        {"verdict": "fail"},
        {"verdict": "approve", "arguments": {"amount": 1}},
    ],
)
def test_a_question_with_a_forged_decision_is_refused(stage: Stage, tools: Toolbox, said: dict[str, Any]) -> None:
    stage.start(paying(tools))
    assert stage.drive() == "parked"
    approval, fiona, frank = Approval.objects.get(), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    forged(approval, fiona, closes=True, person=None, at=database_now())
    page = reads(frank).read(f"/inbox/{approval.id}")
    assert "Open. not authentic" in page and "must remove it before anybody" in page
    before = len(events(approval.run))
    body = {"plan_hash": approval.plan_hash, "justification": "as quoted"} | said
    answer = calls(frank).post(f"approvals/{approval.id}/decision", body)
    assert is_problem(answer, 409, "record-damaged") and "this installation did not write" in answer.json()["detail"]
    form = {name: text for name, text in body.items() if name != "arguments"}
    assert reads(frank).client.post(f"/approvals/{approval.id}/decision", form).status_code == 409
    assert Approval.objects.get().state == "open" and Decision.objects.count() == 1
    assert len(events(approval.run)) == before
    make_late(approval)
    sweep()
    assert Approval.objects.get(pk=approval.pk).state == "expired", "time takes it away"


def test_someone_who_has_a_seat_by_a_forged_row_is_told_so(stage: Stage, tools: Toolbox) -> None:
    approval, fiona, frank = asked(stage, tools), somebody("fiona", FINANCE), somebody("frank", FINANCE)
    forged(approval, fiona)
    text = "according to a row that this installation did not write"
    answer = calls(fiona).post(
        f"approvals/{approval.id}/decision",
        {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "x"},
    )
    assert is_problem(answer, 409, "already-voted") and text in answer.json()["detail"]
    assert text in reads(fiona).read(f"/inbox/{approval.id}")
    decide(approval.id, verdict="abstain", plan_hash=approval.plan_hash, justification="not mine", by=frank)
    assert text not in reads(frank).read(f"/inbox/{approval.id}"), "what somebody said is theirs"


STAGES = '"stages": [{"queue": "finance_po", "quorum": 1}, {"queue": "legal", "quorum": 2}]'
PLANS = [
    "{}",
    "[]",
    "5",
    '{"a": NaN}',
    "[" * 3000,
    "[" * 900 + "]" * 900,
    '{"tool": 5, "arguments": []}',
    f'{{"a": {"9" * 5000}}}',
    '{"evidence": [5], "documents": [5]}',
    f'{{{STAGES}, "stage": 1}}',
    f'{{{STAGES}, "stage": 2, "passed": 5}}',
    '{"stages": 5, "stage": 1}',
    '{"amount": {"value": "NaN", "currency": "USD"}, "proof": {"typed": {"amount": "x"}}}',
]


def put(run: Run, plan: str, state: str) -> Approval:
    """Insert a question with its wait, with the application's database rights."""
    now, id = database_now(), uuid4()
    wait = Wait.objects.create(
        id=uuid4(), run=run, slot=f"forged/{uuid4()}", kind="approval", opened_at=now, deadline=now + timedelta(days=1)
    )
    return Approval.objects.create(
        id=id,
        run=run,
        wait=wait,
        queue="finance_po",
        state=state,
        tool="pay",
        title="t",
        rule="r",
        plan=plan.encode(),
        plan_hash="sha256:x",
        requested_by="user:x",
        opened_at=now,
        deadline=now + timedelta(days=1),
        decided_at=None if state == "open" else now,
        case_id=id if "stages" in plan else None,
    )


@pytest.mark.parametrize("state", ["open", "astray", "approved"])
def test_a_question_that_nobody_could_have_put_takes_no_list_away(stage: Stage, tools: Toolbox, state: str) -> None:
    admin, fiona, olga = boss(), somebody("fiona", FINANCE), somebody("olga", "operator", "auditor")
    acts.prove("finance_po", ProofBody(type_amount=True, type_target=True, justification=WHY), by=admin)
    ours = asked(stage, tools)
    rows = [put(ours.run, plan, state) for plan in PLANS]
    for row, answer in zip(rows, [f'{{"x": {"9" * 5000}}}', '"x"', "[5]", '{"on_timeout": 5}', "null"], strict=False):
        change = "UPDATE approvals_approval SET evidence = %s, documents = %s, timing = %s WHERE id = %s"
        tamper(change, answer, answer, answer, row.pk)
    paths = [
        "/inbox",
        "/inbox?show=decided",
        "/",
        "/runs",
        f"/runs/{ours.run_id}",
        f"/runs/{ours.run_id}?tab=decisions",
    ]
    paths += [f"/inbox/{row.pk}" for row in rows]
    api = ["approvals", "approvals?state=open", f"runs/{ours.run_id}", f"runs/{ours.run_id}/why"]
    api += [f"approvals/{row.pk}" for row in rows]
    for by in (fiona, olga):
        reader, caller = reads(by), calls(by)
        assert {path: status for path in paths if (status := reader.get(path).status_code) not in (200, 403)} == {}
        assert {path: status for path in api if (status := caller.get(path).status_code) not in (200, 403, 404)} == {}
    listed = {row["id"] for row in calls(olga).get("approvals").json()["results"]}
    assert {str(row.pk) for row in [ours, *rows]} <= listed


def test_a_question_whose_plan_nobody_can_read_is_decided_by_nobody(stage: Stage, tools: Toolbox) -> None:
    admin, fiona = boss(), somebody("fiona", FINANCE)
    acts.prove("finance_po", ProofBody(type_amount=True, type_target=True, justification=WHY), by=admin)
    ours = asked(stage, tools)
    for plan in PLANS:
        row = put(ours.run, plan, "open")
        for verdict in ("approve", "reject"):
            fields = {"verdict": verdict, "plan_hash": row.plan_hash, "justification": "as quoted"}
            answer = calls(fiona).post(f"approvals/{row.pk}/decision", fields)
            assert answer.status_code == 409, (plan[:40], verdict, answer.content[:300])
    assert not Decision.objects.exists()


PUT = (
    "INSERT INTO approvals_queue (name, title, role, state, currency, needs_amount, set_by, made_at, changed_at, code)"
    " VALUES ('zzz', 'z', 'newcomers', 'open', 'USD', false, 'user:boss', now(), now(), '\\x00')"
)


@pytest.fixture
def case(stage: Stage, tools: Toolbox) -> Approval:
    return asked(stage, tools)


def opened(case: Approval, by: Actor) -> set[str]:
    paths = ("/runs", f"/runs/{case.run_id}", "/inbox", "/audit", "/api/v1/approvals", f"/api/v1/runs/{case.run_id}")
    return {path for path in paths if signed_in(by).get(path).status_code == 200}


def test_a_queue_that_is_put_in_makes_no_group_a_role(case: Approval) -> None:
    eve, admin = somebody("eve", "newcomers"), boss()
    assert opened(case, eve) == set()
    run_sql(PUT)
    assert opened(case, eve) == set() and not is_role("newcomers")
    assert "zzz" in QUEUES and QUEUES["zzz"] == ""
    page = signed_in(admin).get("/queues").content.decode()
    assert "zzz" in page and "not authentic" in page
    text = signed_in(admin).get("/setup").content.decode()
    assert "Queue zzz" in text and "changed outside the application" in text


def test_what_was_a_role_by_a_queue_is_none_once_that_is_removed_or_changed_past_us(case: Approval) -> None:
    """In the very process that cached it as a role."""
    eve, now = somebody("eve", "managers"), database_now()
    older = Queue(name="older", title="Older", role="managers", set_by="user:boss", made_at=now, changed_at=now)
    older.seal()
    older.save()
    assert {"/runs", "/audit"} <= opened(case, eve) and is_role("managers")
    run_sql("UPDATE approvals_queue SET title = 'x' WHERE name = 'older'")
    assert opened(case, eve) == set()
    acts.change("older", QueueChangeBody(title="Older", justification=WHY), by=boss())
    assert {"/runs", "/audit"} <= opened(case, eve)
    acts.remove("older", by=Actor("user", "boss", person=User.objects.get(username="boss").pk), justification=WHY)
    assert opened(case, eve) == set() and not is_role("managers")


def test_the_roles_of_the_settings_are_roles_before_anything_was_read() -> None:
    QUEUES.forget()
    assert is_role("approver_finance") and is_role("operator") and not is_role("managers") and not is_role("")


SAID = {
    "huge": f'{{"x": {HUGE}}}',
    "list": "[]",
    "text": '"x"',
    "deep": '{"x": ' * 3000 + "1" + "}" * 3000,
    "deeper than is shown": "[" * 300 + "]" * 300,
    "null": "null",
    "strange state": '{"state": [1], "caps": 1, "context": 2, "batch": {}}',
}
said_so = pytest.mark.parametrize("said", SAID.values(), ids=SAID)


def insert(table: str, **values: Any) -> int:
    columns, places = ", ".join(f'"{name}"' for name in values), ", ".join(["%s"] * len(values))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({columns}) VALUES ({places}) RETURNING id", list(values.values()))
        return int(cursor.fetchone()[0]) if table != "ledger_rulechange" else 0


def act(said: str, action: str, **more: Any) -> int:
    fields = {
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
    return insert("ledger_actrecord", **(fields | more))


def override(said: str, run: Run, action: str = "pause") -> int:
    return insert(
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
    value = run.approvals.get()
    return insert(
        "approvals_decision",
        approval_id=value.pk,
        verdict="reject",
        plan_hash=value.plan_hash,
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
    insert(
        "ledger_rulechange",
        id=id,
        family="policies",
        act="durableagents.contrib.policies.services.create",
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
def test_the_audit_lists_them_as_unverified_among_others(busy: Run, read: Callable[[str], Any], said: str) -> None:
    before = [row["id"] for row in read("/api/v1/audit").json()["results"]]
    ids = [f"act-{act(said, 'declare_dead')}", f"act-{act(said, 'start', run_id=busy.pk)}"]
    ids += [f"override-{override(said, busy)}", f"override-{override(said, busy, 'budget')}"]
    ids += [f"decision-{decision(said, busy)}"]
    page = read("/audit")
    assert page.status_code == 200 and page.content.decode().count("not authentic") == len(ids)
    rows = read("/api/v1/audit").json()["results"]
    assert {row["id"] for row in rows if row["is_authentic"] is False} == set(ids)
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
    assert not any("interpreted" in problem for each in [run, *lists.values()] for problem in each["problems"])
    out = StringIO()
    with pytest.raises((CommandError, SystemExit)):
        call_command("ledger", "verify", "--all", stdout=out, stderr=out)
    assert f"act record {ids[-1]}" in out.getvalue()


def test_a_list_that_nobody_can_make_sense_of_hides_no_other(busy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.verification import registers

    def every_oddity() -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(registers, "more", [every_oddity, *registers.more])
    act("{}", "queue")
    found = {each.name: each.problems for each in verify_registers()}
    assert found["every oddity"] == ["every oddity: a row can't be interpreted: RecursionError: too deep"]
    assert found["acts"] and found["accounts"] == []


@said_so
def test_waits_that_nobody_can_read_take_no_page_away(busy: Run, said: str) -> None:
    olga, fiona, now = somebody("olga", "operator", "auditor"), somebody("fiona", "approver_finance"), database_now()
    for kind in Wait.Kind.values:
        if kind != Wait.Kind.APPROVAL:
            id = uuid4()
            late = now + timedelta(days=1)
            Wait.objects.create(id=id, run=busy, slot=f"forged/{kind}", kind=kind, opened_at=now, deadline=late)
            tamper("UPDATE runs_wait SET detail = %s, lacking = %s WHERE id = %s", said, said, id)
    paths = ["/inbox", "/runs", f"/runs/{busy.pk}", f"/runs/{busy.pk}?tab=decisions"]
    paths += [f"/api/v1/{each}" for each in ("runs", f"runs/{busy.pk}", f"runs/{busy.pk}/why", "questions")]
    for by in (olga, fiona):
        client = signed_in(by)
        assert {path: status for path in paths if (status := client.get(path).status_code) not in (200, 403, 404)} == {}


@pytest.mark.usefixtures("db")
def test_what_is_read_is_what_was_written_as_deep_as_we_write() -> None:
    field = Json()
    for levels, is_read in ((99, True), (101, False)):
        text = "[" * levels + "]" * levels
        assert (field.from_db_value(text, None, connection) is not None) is is_read
    assert field.from_db_value('{"a": [1, {"b": null}]}', None, connection) == {"a": [1, {"b": None}]}


OPS = Actor("os", "ops", role="operator", auth="shell")


@pytest.fixture
def read(stage: Stage) -> Iterator[Callable[[str], Any]]:
    user = User.objects.create_user("ada")
    user.groups.set([Group.objects.get_or_create(name="auditor")[0]])
    client = Client()
    client.force_login(user)
    yield lambda address: client.get(address)
    User.objects.all().delete()


@pytest.fixture
def busy(stage: Stage, tools: Toolbox) -> Run:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.pay, Item(name="po", amount=5000))).ref)

    run = lifecycle.start(agent_of(node, tools=tools.all()).graph_id, {}, by=SHOP)
    stage.drive()
    lifecycle.pause(run.pk, by=OLGA, justification="month end")
    lifecycle.resume(run.pk, by=OLGA, justification="month began")
    value = run.approvals.get()
    decide(value.id, verdict="approve", plan_hash=value.plan_hash, justification="as quoted", by=FIONA)
    acted("declare_dead", by=OPS, subject="gone.example", justification="its power supply burnt")
    return run


def marks() -> dict[str, bool | None]:
    return {act.action: act.is_authentic for act in trail.acts(trail.Filters()) if act.kind != "account"}


def test_what_our_processes_wrote_is_authentic(busy: Run, read: Callable[[str], Any]) -> None:
    assert marks() == dict.fromkeys(("approve", "pause", "resume", "start", "declare_dead"), True)
    page = read("/audit").content.decode()
    assert "not authentic" not in page


@pytest.mark.parametrize(
    ("table", "change", "action"),
    [
        ("ledger_overriderecord", "by = 'user:fiona'", "pause"),
        ("approvals_decision", "justification = 'x'", "approve"),
        ("ledger_actrecord", "subject = 'x'", "start"),
        ("ledger_actrecord", "code = NULL", "declare_dead"),
        ("approvals_decision", "code = NULL", "approve"),
        ("ledger_overriderecord", "code = decode(md5(id::text), 'hex')", "pause"),
        ("ledger_actrecord", "code = NULL, n = -n", "declare_dead"),
    ],
)
def test_a_changed_row_is_marked(busy: Run, table: str, change: str, action: str) -> None:
    tamper(f"UPDATE {table} SET {change}")
    assert marks()[action] is False


@pytest.mark.parametrize(
    ("table", "which"),
    [
        ("ledger_actrecord", "run_id IS NULL"),
        ("ledger_actrecord", "run_id IS NOT NULL"),
        ("ledger_overriderecord", "action = 'pause'"),
        ("approvals_decision", "verdict = 'approve'"),
    ],
)
def test_nobody_puts_in_a_copy_of_what_somebody_did(busy: Run, table: str, which: str) -> None:
    """With the application's rights: the copy's code would be right, and it would count as another act."""
    with connection.cursor() as cursor:
        names = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        cursor.execute(f"{names} AND attname <> ALL ('{{id,n,prev_hash,hash}}')", [table])
        columns = ", ".join(f'"{name}"' for (name,) in cursor.fetchall())
        with pytest.raises(IntegrityError, match="once"), transaction.atomic():
            cursor.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE {which}")


PAGES = ("/queues", "/queues/of/finance_po", "/queues/calendars", "/inbox", "/policies")
READS = ("/queues", "/queues/finance_po", "/queues/finance_po/timing", "/calendars")
NEVER = ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC")


def forge(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
    QUEUES.forget()


def forge_timing(
    version: int = 1, set_at: str = "now", steps: str = "[]", code: bytes | None = None, queue: str = "finance_po"
) -> None:
    forge(
        "INSERT INTO approvals_timing (queue_id, version, calendar, on_timeout, steps, remind, every, at_once_if_away,"
        " set_by, set_at, code) SELECT id, %s, '', 'escalate', %s, '[]', 0, false, 'user:admin', %s, %s"
        " FROM approvals_queue WHERE name = %s",
        version,
        steps,
        set_at,
        code,
        queue,
    )


def forge_calendar(
    name: str, version: int = 1, zone: str = "UTC", week: str = "[]", holidays: str = "[]", is_removed: bool = False
) -> None:
    forge(
        "INSERT INTO approvals_calendar (name, version, zone, week, holidays, is_removed, set_by, set_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, 'x', now())",
        name,
        version,
        zone,
        week,
        holidays,
        is_removed,
    )


def forge_deputy(principal: int | None, deputy: int | None, until: str = "infinity") -> None:
    forge(
        "INSERT INTO approvals_deputy (principal, deputy, starts_at, ends_at, reason, set_by, made_at, revoked_by,"
        " code) VALUES (%s, %s, '2020-01-01', %s, 'x', 'user:ann', %s, '', %s)",
        principal,
        deputy,
        until,
        until,
        bytes(33),
    )


def forge_absence(person: int | None, until: str, since: str = "now") -> None:
    forge(
        "INSERT INTO approvals_absence (person, starts_at, ends_at, reason, set_by, made_at, ended_by)"
        " VALUES (%s, %s, %s, 'x', 'user:ann', clock_timestamp(), '')",
        person,
        since,
        until,
    )


def statuses(by: Actor, paths: Sequence[str] = PAGES, reads: Sequence[str] = READS) -> dict[str, int]:
    client = signed_in(by)
    fields = {path: client.get(path).status_code for path in [*paths, *(f"/api/v1{each}" for each in reads)]}
    return {path: status for path, status in fields.items() if status not in (200, 403)}


@pytest.mark.parametrize("set_at", NEVER)
def test_a_forged_time_that_no_calendar_of_ours_has_stops_no_run(stage: Stage, tools: Toolbox, set_at: str) -> None:
    admin = boss()
    forge_timing(set_at=set_at, queue="legal")
    forge_timing(set_at=set_at, code=bytes(33))
    approval = asked(stage, tools)
    assert approval.timing is None
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed" and statuses(admin, reads=()) == {}


BAD = {
    "a/b": {},
    "": {},
    "garb": {"zone": "Nowhere", "week": '{"a": 1}', "holidays": '{"b": 2}'},
    "garb2": {"week": '"x"', "holidays": '[["2026-99-99", "x"]]'},
    "garb3": {"week": "[[[0, 99999]], 1]"},
    "garb4": {"week": f"[{HUGE}]", "holidays": "[1e400]"},
    "\u202e": {},
}


@pytest.mark.usefixtures("db")
def test_forged_calendars_break_no_page_and_are_shown_as_what_they_are() -> None:
    admin = boss()
    for name, what in BAD.items():
        forge_calendar(name, **what)
    assert (
        statuses(
            admin,
            [*PAGES, "/queues/calendars/of/garb", "/queues/calendars/of/garb2"],
            [*READS, "/calendars/garb", "/calendars/garb4"],
        )
        == {}
    )
    page = signed_in(admin).get("/queues/calendars").content.decode()
    assert page.count("not authentic, so without effect") == len(BAD) and 'calendars/of/garb3"' in page
    assert "/of/a/b" not in page and "/of/a%2Fb" not in page


@pytest.mark.parametrize("until", NEVER)
def test_a_forged_deputy_locks_nobody_out(stage: Stage, tools: Toolbox, until: str) -> None:
    ann, bob = somebody("ann", "approver_finance"), somebody("bob", "approver_finance", "operator")
    approval = asked(stage, tools)
    forge_deputy(ann.person, bob.person, until)
    assert statuses(bob) == statuses(ann) == {}
    assert signed_in(bob).get(f"/inbox/{approval.id}").status_code == 200
    say(approval, bob)
    assert stage.drive() == "completed"


@pytest.mark.usefixtures("db")
@each_case("at", NEVER)
def test_a_forged_absence_breaks_no_page(at: str) -> None:
    ann = somebody("ann", "approver_finance")
    for ends_at in (at, "infinity"):
        forge_absence(ann.person, ends_at, since="-infinity")
    assert statuses(ann) == {}


def test_a_forged_limit_that_has_ended_leaves_room_for_one_that_is_set(stage: Stage, tools: Toolbox) -> None:
    admin, ann = boss(), somebody("ann", "approver_finance")
    approval = asked(stage, tools)
    forge(
        "INSERT INTO approvals_limit (queue_id, person, most, currency, set_by, set_at, ended_at, ended_by)"
        " SELECT id, %s, 'NaN', 'USD', 'x', 'infinity', 'infinity', 'x' FROM approvals_queue WHERE name = 'finance_po'",
        ann.person,
    )
    assert statuses(admin) == {}
    limited(admin, "9000", "ann")
    say(approval, ann)
    assert Approval.objects.get().state == "approved" and Limit.objects.count() == 2


@pytest.mark.parametrize("proof", [f'{{"above": {HUGE}}}', '{"above": 0.5}', '"x"', "[" * 3000 + "]" * 3000])
def test_a_queue_whose_proof_nobody_can_read_is_not_authentic(stage: Stage, tools: Toolbox, proof: str) -> None:
    admin, ann = boss(), somebody("ann", "approver_finance")
    approval = asked(stage, tools)
    forge("UPDATE approvals_queue SET proof = %s, changed_at = 'infinity' WHERE name = 'finance_po'", proof)
    assert statuses(admin) == statuses(ann) == {}
    with pytest.raises(Exception, match="changed outside the application"):
        say(approval, ann)
    forge("UPDATE approvals_queue SET proof = NULL WHERE name = 'finance_po'")
    queue_acts.change("finance_po", QueueChangeBody(role="approver_finance", justification=WHY), by=admin)
    say(approval, ann)
