"""A policy is tried on what was done before it counts for what is to come, and nothing is changed by that."""

from __future__ import annotations

import itertools
import re
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client

from approvals.models import Policy
from approvals.policies import trying
from approvals.policies.bodies import TryBody
from durableagents import Context, End
from ledger.errors import InvalidInput, Proposed
from ledger.four_eyes import guards
from ledger.four_eyes.guards import GuardsBody
from runs.engine.agents import Agent
from tests.integration.api.conftest import Api, is_problem, issue_key, person
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.approvals.test_policies import execute, put
from tests.integration.runs.stage import Stage, dump
from tests.integration.runs.stories import as_superuser
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db


def spending(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.look, Item(name="before"))
        return End((await ctx.call(tools.order, Item(name="po", amount=state.asked.amount))).ref)

    return agent_of(node, tools=tools.all())


def history(stage: Stage, tools: Toolbox, *amounts: int) -> Agent:
    agent = spending(tools)
    for amount in amounts:
        stage.start(agent, amount=amount)
        assert stage.drive() == "completed"
    return agent


def attempt(effect: str = "require", **more: Any) -> trying.Tried:
    queue = {"queue": "legal"} if effect == "require" else {}
    return trying.tried(TryBody(**{"effect": effect, "tool": "order", **queue, **more}))


def counts(found: trying.Tried) -> tuple[int, int, int, int]:
    return found.calls, found.gated.calls, found.denied.calls, found.let_through.calls


def test_it_says_which_calls_would_have_been_held_up_and_changes_nothing(stage: Stage, tools: Toolbox) -> None:
    history(stage, tools, 1, 5, 20, 30)
    before = dump()
    found = attempt(condition="args.amount >= 20")
    assert counts(found) == (4, 2, 0, 0) and dump() == before
    assert [call.tool for call in found.gated.examples] == ["order", "order"]
    (load,) = found.loads
    assert (load.queue, load.calls, load.a_day, load.median_seconds, load.decided) == ("legal", 2, 2.0, None, 0)
    assert counts(attempt("deny", condition="args.amount = 5")) == (4, 0, 1, 0)
    assert counts(attempt("allow")) == (4, 0, 0, 0), "to allow what passes anyway changes nothing"
    assert counts(attempt(calls=2)) == (2, 2, 0, 0) and attempt(tool="mail").gated.calls == 0


def test_in_the_place_of_one_in_force_it_says_what_would_newly_pass(stage: Stage, tools: Toolbox) -> None:
    agent, admin = spending(tools), boss()
    put(admin)
    for amount in (5, 50):
        run = stage.start(agent, amount=amount)
        assert stage.drive() == "parked"
        stage.decide(run)
        assert stage.drive() == "completed"
    found = attempt(name="orders", condition="args.amount > 10")
    assert counts(found) == (2, 0, 0, 1)
    assert (found.loads[0].calls, found.loads[0].decided) == (1, 2) and found.loads[0].median_seconds is not None
    assert counts(attempt("deny", name="orders")) == (2, 0, 2, 0)


def test_what_cant_be_told_of_the_past_is_said(stage: Stage, tools: Toolbox) -> None:
    history(stage, tools, 5)
    found = attempt(condition="cost > 5 and source = model")
    assert (found.unsure, found.gated.calls) == (1, 1)


def test_what_could_not_be_put_in_force_is_not_tried(stage: Stage, tools: Toolbox) -> None:
    history(stage, tools, 5)
    for wrong in ({"tool": "nothing"}, {"condition": "args.amount > x"}, {"queue": "nowhere"}):
        with pytest.raises(InvalidInput):
            attempt(**wrong)
    put(boss())
    execute("UPDATE approvals_policy SET rule = 'another'")()
    with pytest.raises(trying.NothingToTry):
        attempt()


def test_it_ends_in_time_whatever_there_is(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    history(stage, tools, 5, 6)
    monkeypatch.setattr(trying, "LONGEST_SECONDS", -1.0)
    found = attempt()
    assert found.is_cut and found.calls == 0
    monkeypatch.setattr(trying, "LONGEST_SECONDS", 60.0)
    monkeypatch.setattr(trying, "AT_ONCE", 1)
    assert attempt().calls == 2


def test_what_calls_were_made_with_is_read_where_a_rule_asks_for_it_and_so_much_at_once(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(stage, tools, 5, 20, 30)
    read: list[int] = []
    taken = trying._sealed

    def sealed(group: Any) -> Any:
        given = taken(group)
        read.append(len(given))
        return given

    monkeypatch.setattr(trying, "_sealed", sealed)
    assert counts(attempt("deny", condition="requester = key:shop")) == (3, 0, 3, 0) and sum(read) == 0
    read.clear()
    assert counts(attempt("deny", condition="args.amount > 10")) == (3, 0, 2, 0) and read[0] == 3
    read.clear()
    monkeypatch.setattr(trying, "MOST_BYTES", 1)
    assert counts(attempt("deny", condition="args.amount > 10")) == (3, 0, 2, 0) and max(read) == 1
    assert counts(attempt("deny", tool="mail", condition="args.amount > 10")) == (3, 0, 0, 0)
    assert sum(read) == 3, "of another tool's calls none is read"


def test_a_call_that_nobody_can_read_is_counted_as_one(stage: Stage, tools: Toolbox) -> None:
    """Lists within lists, without an end."""
    history(stage, tools, 5, 20)
    sealed = "UPDATE ledger_event SET sealed = %s WHERE kind = 'ToolInvoked' AND fact = 'intent' AND seq < %s"
    assert as_superuser(sealed, b"\x00" + b"[" * 100_000, 99) == 2
    found = attempt("deny", condition="args.amount > 10")
    assert (found.calls, found.unreadable) == (0, 2)
    assert attempt("deny", condition="requester = key:shop").unreadable == 0


def test_the_clock_is_looked_at_between_one_call_and_the_next(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(stage, tools, 1, 2, 3, 4, 5, 6)
    ticks = itertools.count()
    monkeypatch.setattr(trying, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    found = attempt(condition="args.amount > 10")
    assert found.is_cut and 0 < found.calls < 6


def test_a_shell_lists_the_rules_and_tries_one(stage: Stage, tools: Toolbox) -> None:
    history(stage, tools, 5, 20)
    put(boss(), name="known", tool="mail", effect="deny")
    out = StringIO()
    call_command("policies", "list", stdout=out)
    call_command(
        "policies", "try", tool="order", effect="require", queue="legal", condition="args.amount > 10", stdout=out
    )
    told = out.getvalue()
    assert "known@1\tdeny\tany agent mail" in told and "finance_po" in told, "gates in code are among them"
    assert "2 calls since" in told and "held up for a yes\t1\t" in told and "queue legal\t1" in told
    with pytest.raises(CommandError, match="no tool"):
        call_command("policies", "try", tool="nothing", effect="deny")
    assert Policy.objects.count() == 1


@pytest.mark.parametrize("types_amount", [True, False])
def test_a_second_person_tries_what_was_proposed_as_it_stands(
    client: Client, stage: Stage, tools: Toolbox, types_amount: bool
) -> None:
    history(stage, tools, 1, 20, 30)
    first, second = boss(), somebody("bert", is_staff=True, is_superuser=True)
    guards.require(GuardsBody(families=["policies", "roles"], justification=WHY), by=first)
    with pytest.raises(Proposed) as waits:
        put(first, condition="args.amount >= 20", type_amount=types_amount)
    client.force_login(User.objects.get(pk=second.person))
    page = client.get(f"/changes/{waits.value.change}").content.decode()
    form = page.partition('action="/policies/tries"')[2].partition("</form>")[0]
    sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form.replace("&gt;", ">")))
    assert sent["condition"] == "args.amount >= 20" and sent.get("type_amount") == ("on" if types_amount else None)
    told = client.post("/policies/tries", sent)
    page = told.content.decode()
    assert told.status_code == 200 and "Tried on history" in page and "Not tried" not in page
    assert re.search(r'held up for a yes</b></td><td class="num" data-label="calls">2</td>', page)
    assert not Policy.objects.exists()


def test_who_may_not_read_what_calls_were_made_with_finds_that_out_by_no_condition(
    stage: Stage, tools: Toolbox
) -> None:
    history(stage, tools, 1, 20)
    Group.objects.get(name="operator").permissions.clear()
    body = {"effect": "deny", "tool": "order", "rule": "none"}
    operator, auditor = (Api(issue_key(person(role, role), "test")) for role in ("operator", "auditor"))
    by_halves = body | {"condition": "args.amount > 10"}
    assert is_problem(operator.post("policies/try", by_halves), 403, "payloads-hidden")
    assert operator.post("policies/try", body).json()["denied"]["calls"] == 2
    assert auditor.post("policies/try", by_halves).json()["denied"]["calls"] == 1
    admin = Api(issue_key(person("root", is_superuser=True, is_staff=True), "test"))
    told = admin.post("policies/try", by_halves).json()["denied"]
    assert told["calls"] == 1 and told["examples"] == [], "who sees no run is told none"
