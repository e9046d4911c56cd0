"""The audit shows every human action once, in one order, on any pages."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import trail
from approvals.api.schemas import AuditPage
from approvals.models import Approval, Decision
from approvals.services import decide
from durableagents import Context, End
from durableagents.identity.auth import issue_key
from ledger.actors import Actor
from ledger.append import acted
from ledger.models import AccountRecord, ActRecord, OverrideRecord
from runs.models import Run, Wait
from runs.services import lifecycle, questions, signals
from tests.cases import each_case
from tests.conftest import CHECKOUT
from tests.integration.runs.stage import Stage
from tests.tampering import tamper
from tests.world import FIONA, OLGA, SHOP, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nobody_stays(stage: Stage) -> Iterator[None]:
    yield
    User.objects.all().delete()


@pytest.fixture
def busy(stage: Stage, tools: Toolbox) -> Run:
    """A run in which people did one thing of every kind."""

    async def node(state: Notes, ctx: Context) -> End:
        item = await ctx.ask("finance_po", title="What?", schema=Item)
        return End((await ctx.call(tools.pay, Item(name=item.name, amount=5000))).ref)

    run = lifecycle.start(agent_of(node, tools=tools.all()).graph_id, {}, by=SHOP)
    stage.drive()
    lifecycle.pause(run.pk, by=OLGA, justification="month end")
    lifecycle.resume(run.pk, by=OLGA, justification="month began")
    signals.signal(run.pk, "price", 7, by=SHOP)
    questions.answer(
        run.pk, Wait.objects.get(kind="input").pk, {"name": "gold", "amount": 1}, by=OLGA, justification="as told"
    )
    stage.drive()
    row = Approval.objects.get()
    decide(row.id, verdict="approve", plan_hash=row.plan_hash, justification="as quoted", by=FIONA)
    return Run.objects.get(pk=run.pk)


def listed(**filters: str) -> list[tuple[str, str]]:
    return [(act.action, act.record.by) for act in trail.acts(trail.Filters(**filters)) if act.kind != "account"]


def literals(called: ast.Call) -> Iterator[str]:
    first = called.args[0]
    for each in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
        if isinstance(each, ast.Constant):
            yield str(each.value)


def test_whatever_is_recorded_can_be_asked_for() -> None:
    recorded = {
        name
        for app in ("approvals", "durableagents", "ledger", "runs")
        for path in (CHECKOUT / app).rglob("*.py")
        if "acted(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "acted" and node.args
        for name in literals(node)
    }
    assert len(recorded) >= 30 and recorded <= {*trail.ACTS, *trail.OVERRIDES}


def test_everything_that_people_did_is_there(busy: Run) -> None:
    assert listed() == [
        ("approve", "user:fiona"),
        ("answer", "user:olga"),
        ("signal", "key:shop"),
        ("resume", "user:olga"),
        ("pause", "user:olga"),
        ("start", "key:shop"),
    ]
    answer = ActRecord.objects.get(action="answer")
    assert (answer.subject, answer.queue, answer.justification, answer.role) == (
        "What?",
        "finance_po",
        "as told",
        "operator",
    )
    assert (answer.before["state"], answer.after["state"]) == ("waiting_human", "running")
    assert answer.seq is not None and answer.seq < Decision.objects.get().seq


def test_what_the_system_and_the_outside_do_is_nobodys_act(stage: Stage, tools: Toolbox) -> None:
    acted("signal", by=Actor("outside", "callback", auth="token"))
    acted("start", by=Actor("system", "sweeper"))
    assert not ActRecord.objects.exists()


@each_case(
    ("filters", "found"),
    [
        ({"action": "signal"}, ["signal"]),
        ({"action": "approve"}, ["approve"]),
        ({"action": "pause"}, ["pause"]),
        ({"by": "olga"}, ["answer", "resume", "pause"]),
        ({"by": "user:olga"}, ["answer", "resume", "pause"]),
        ({"by": "key:olga"}, []),
        ({"by": "ol"}, []),
        ({"by": "shop"}, ["signal", "start"]),
        ({"queue": "finance_po"}, ["approve", "answer"]),
        ({"queue": "legal"}, []),
        ({"since": "2999-01-01"}, []),
        ({"until": "2001-01-01"}, []),
        ({"since": "2001-01-01", "until": "2999-01-01", "action": "start"}, ["start"]),
        ({"agent": "another"}, []),
        ({"run": "ffff"}, []),
    ],
)
def test_it_is_filtered(busy: Run, filters: dict[str, str], found: list[str]) -> None:
    assert [action for action, _ in listed(**filters)] == found


def test_it_is_filtered_by_agent_and_run(busy: Run) -> None:
    for filters in ({"agent": busy.agent}, {"agent": busy.graph_id}, {"run": str(busy.pk)}, {"run": str(busy.pk)[:9]}):
        assert len(listed(**filters)) == 6, filters
    assert listed(agent=f"{busy.agent}@9.9.9") == []


@each_case(
    ("given", "name"),
    [
        ({"run": "zz"}, "run"),
        ({"before": "never"}, "before"),
        ({"action": "<b>"}, "action"),
        ({"since": "yesterday"}, "from"),
        ({"until": "2026-13-01"}, "to"),
        ({"before": "999999999999999999.1.1"}, "before"),
        ({"run": "%"}, "run"),
        ({"until": "9999-12-31"}, "to"),
    ],
)
def test_what_can_not_be_understood_matches_nothing_and_is_named(busy: Run, given: dict[str, str], name: str) -> None:
    filters = trail.Filters(**given)
    assert list(filters.problems) == [name] and trail.acts(filters) == []


AT = datetime(2026, 1, 1, tzinfo=UTC)


def crowded(run: Run, count: int) -> None:
    """Insert actions from every source at one moment, some a microsecond apart."""
    for n in range(count):
        at = AT + timedelta(microseconds=n % 3)
        shared = {"by": f"user:u{n}", "auth": "session", "address": "", "at": at}
        OverrideRecord.objects.create(
            run_id=run.pk,
            action="pause",
            role="operator",
            justification="w",
            seq=1,
            chain=b"",
            before={},
            after={},
            **shared,
        )
        ActRecord.objects.create(run_id=run.pk, action="start", **shared)
        AccountRecord.objects.create(action="role_given", subject="user:x", **shared)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_no_page_drops_or_repeats_an_act_of_the_same_moment(busy: Run, size: int) -> None:
    crowded(busy, 8)
    seen: list[tuple[str, int]] = []
    before = ""
    while page := trail.acts(trail.Filters(until="2026-06-01", before=before), size):
        seen += [(act.kind, act.record.pk) for act in page]
        before = page[-1].place
    assert len(seen) == len(set(seen)) == 24
    whole = trail.acts(trail.Filters(until="2026-06-01"), 100)
    assert seen == [(act.kind, act.record.pk) for act in whole]
    assert [act.at for act in whole] == sorted((act.at for act in whole), reverse=True)


def test_what_comes_while_somebody_pages_moves_nothing(busy: Run) -> None:
    crowded(busy, 4)
    first = trail.acts(trail.Filters(until="2026-06-01"), 5)
    rest = [act.place for act in trail.acts(trail.Filters(until="2026-06-01", before=first[-1].place), 100)]
    crowded(Run.objects.get(pk=busy.pk), 1)  # at the same moments
    again = [act.place for act in trail.acts(trail.Filters(until="2026-06-01", before=first[-1].place), 100)]
    assert set(rest) <= set(again)


def test_a_renamed_person_is_found_under_the_new_name_too(busy: Run) -> None:
    user = User.objects.create_user("ines")
    lifecycle.pause(
        busy.pk, by=Actor("user", "ines", role="operator", auth="session", person=user.pk), justification="let me see"
    )
    user.username = "ines-marie"
    user.save()
    assert ("pause", "user:ines") in listed(by="ines-marie") and ("pause", "user:ines") in listed(by="ines")


def test_it_costs_the_same_for_few_acts_and_for_many(busy: Run) -> None:
    counts = []
    for more in (1, 30):
        crowded(busy, more)
        with CaptureQueriesContext(connection) as found:
            trail.acts(trail.Filters())
        counts.append(len(found))
    assert counts == [5, 5], "one for each source, and the agents"


@each_case("table", ["ledger_overriderecord", "ledger_actrecord", "ledger_accountrecord", "approvals_decision"])
def test_a_page_is_found_by_an_index(busy: Run, table: str) -> None:
    verb = "verdict" if table == "approvals_decision" else "action"
    with transaction.atomic(), connection.cursor() as cursor:
        # Few rows are faster without an index; this asks whether an index gives the list's order.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        for where in ("true", f"{verb} = 'x'", "by = 'user:x'"):
            cursor.execute(
                f"EXPLAIN SELECT * FROM {table} WHERE {where} AND at <= clock_timestamp() ORDER BY at "
                f"DESC, id DESC LIMIT 50"
            )
            plan = "\n".join(row[0] for row in cursor.fetchall())
            assert "Index Scan" in plan and "Sort" not in plan, plan


@pytest.fixture
def api() -> Callable[..., Any]:
    user = User.objects.create_user("ada")
    user.groups.set([Group.objects.get_or_create(name="auditor")[0]])
    headers = {"Authorization": f"Bearer {issue_key(user, 'test')}"}
    return lambda address="/api/v1/audit", **query: Client().get(address, query, headers=headers)


def test_the_api_gives_the_same_with_the_exact_state(busy: Run, api: Callable[..., Any]) -> None:
    answer = api(run_id=str(busy.pk)).json()
    AuditPage.model_validate(answer)
    assert [row["action"] for row in answer["results"]] == ["approve", "answer", "signal", "resume", "pause", "start"]
    decision = answer["results"][0]
    found = Decision.objects.get()
    assert (decision["seq"], decision["chain"], decision["plan_hash"]) == (
        found.seq,
        bytes(found.chain).hex(),
        found.plan_hash,
    )
    assert (decision["before"]["state"], decision["after"]["state"], decision["queue"]) == (
        "waiting_human",
        "running",
        "finance_po",
    )
    assert all(row["seq"] and row["chain"] and row["agent"] == busy.graph_id for row in answer["results"])


def test_the_api_pages_to_the_end_and_shows_what_was_done_to_accounts(busy: Run, api: Callable[..., Any]) -> None:
    crowded(busy, 5)
    first, address, seen = api(limit=4).json(), "", []
    seen += first["results"]
    address = first["next"]
    while address:
        page = api(address).json()
        seen += page["results"]
        address = page["next"]
    ids = [row["id"] for row in seen]
    assert (
        len(ids)
        == len(set(ids))
        == sum(m.objects.count() for m in (OverrideRecord, ActRecord, AccountRecord, Decision))
    )
    assert {"role_given", "key_issued", "account_added"} <= {
        row["action"] for row in api(action="accounts").json()["results"]
    }
    assert api(action="key_issued", by="nobody").json() == {"results": [], "next": None}


def test_rows_with_numbers_that_nothing_of_ours_has_hide_nothing_below_them(busy: Run, api: Callable[..., Any]) -> None:
    """A page's last row is where the next one starts, even if it is forged."""
    authentic = {row["id"] for row in api().json()["results"]}
    forged = tamper(
        "INSERT INTO ledger_overriderecord SELECT (jsonb_populate_record(NULL::ledger_overriderecord, to_jsonb(o) ||"
        " jsonb_build_object('id', n, 'at', clock_timestamp(), 'code', NULL))).* FROM"
        " (SELECT * FROM ledger_overriderecord LIMIT 1) o, unnest(%s::bigint[]) n",
        [2**63 - 1, 10**18, *range(-1, -4, -1), -(2**63)],
    )
    seen, address = [], "/api/v1/audit?limit=2"
    while address:
        page = api(address).json()
        seen += [row["id"] for row in page["results"]]
        address = page["next"]
    assert forged == 6 and len(seen) == len(set(seen)) == len(authentic) + forged and authentic < set(seen)


@each_case(
    "query",
    [
        {"action": "dance"},
        {"from": "yesterday"},
        {"to": "x"},
        {"cursor": "x"},
        {"run_id": "x"},
        {"limit": "0"},
        {"colour": "red"},
        {"by": "a\x00"},
    ],
)
def test_the_api_names_what_is_wrong(api: Callable[..., Any], query: dict[str, str]) -> None:
    answer = api(**query)
    assert answer.status_code == 400 and next(iter(query)) in answer.json()["detail"]
