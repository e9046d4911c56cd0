"""Policies as data: an administrator's change counts for every call not yet sent and is recorded; nobody else may."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.utils import ProgrammingError
from django.test import Client

from approvals.authentic import authentic
from approvals.models import Approval, Queue
from approvals.queues import acts as queues
from approvals.services import AlreadyVoted, decide
from durableagents import BusinessFailure, Context, End, Handoff, NotSent, PolicyDenied, Renew
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.setting import GuardsBody
from durableagents.contrib.policies import in_force, services, trying
from durableagents.contrib.policies.conditions import parse_condition
from durableagents.contrib.policies.judging import Rule
from durableagents.contrib.policies.models import Policy
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody, TryBody
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, Proposed
from ledger.models import ActRecord
from runs.engine.agents import Agent
from runs.engine.policy import STRICTEST, Asking
from runs.models import PolicyRevision, Run
from runs.services import lifecycle
from runs.workers import failover
from tests.cases import each_case
from tests.contrib.calendars.timing import away
from tests.contrib.change_control.test_rule_changes import as_the_application
from tests.integration.api.conftest import Api, is_problem, issue_key, person
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.approvals.test_queues import changed
from tests.integration.runs.stage import Stage, at_once, dump, events, in_thread, output, problems, waiting
from tests.integration.runs.test_children import everything
from tests.tampering import tamper
from tests.tiers import many
from tests.world import FIONA, IN_PLACE, OLGA, SHOP, Asked, Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]
MANY = many(64, 16)


def ordering(tools: Toolbox, name: str = "order", amount: int = 5) -> Agent:
    async def node(state: Notes, ctx: Context) -> End:
        try:
            return End((await ctx.call(getattr(tools, name), Item(name="po", amount=amount))).ref)
        except PolicyDenied as no:
            return End(["denied", no.policy, no.version])

    return agent_of(node, tools=tools.all())


def body(effect: str = "require", **more: Any) -> dict[str, Any]:
    queue = {"queue": "legal"} if effect == "require" else {}
    return {"effect": effect, "rule": "the board says so", "tool": "order", "justification": WHY, **queue, **more}


def put(by: Actor, name: str = "orders", effect: str = "require", **more: Any) -> Policy:
    return services.create(NewPolicyBody(name=name, **body(effect, **more)), by=by)


def turned(by: Actor, name: str = "orders", effect: str = "require", **more: Any) -> Policy:
    return services.change(name, PolicyBody(**body(effect, **more)), by=by)


def test_a_policy_counts_for_matching_calls_once_committed(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent, admin = ordering(tools), boss()
    run = stage.start(agent)
    assert stage.drive() == "completed"  # and its worker knows of none
    put(admin, condition="args.amount >= 5")
    run = stage.start(agent)
    assert stage.drive() == "parked" and len(outside.requests) == 1
    approval = Approval.objects.get(run=run)
    assert (approval.queue, approval.rule) == ("legal", "the board says so")
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed()) == 2
    found = events(run, e.PolicyApplied)
    assert [(x.effect, x.policy, x.version, x.revision, x.queues) for x in found] == [
        ("require", "orders", 1, 1, ["legal"])
    ] * 2
    assert problems(run) == []


def test_a_denied_call_ends_in_a_no_that_names_the_policy(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent, admin = ordering(tools, "mail"), boss()
    put(admin, effect="deny", tool="mail")
    run = stage.start(agent)
    assert stage.drive() == "completed" and output(run) == ["denied", "orders", 1] and outside.requests == []
    assert problems(run) == []


def asked_besides(stage: Stage, tools: Toolbox, outside: Outside) -> Run:
    """A run whose call finance approved before its policy began to ask legal."""
    agent, admin = ordering(tools), boss()
    put(admin, queue="finance_po")
    run = stage.start(agent)
    assert stage.drive() == "parked"
    stage.decide(run)
    turned(admin)
    assert stage.drive() == "parked" and outside.requests == []
    return run


def test_a_change_counts_for_a_call_whose_yes_is_there_already(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = asked_besides(stage, tools, outside)
    assert Approval.objects.get(run=run, state="open").queue == "legal"
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed()) == 1
    assert problems(run) == []


def test_an_approver_added_by_a_policy_reads_everywhere_that_the_first_approval_has_not_expired(
    client: Client, stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    run = asked_besides(stage, tools, outside)
    row = Approval.objects.get(run=run, state="open")
    found = "the call was not made yet, for the policy orders (version 2) asks legal as well."
    (answer,) = row.evidence[0]["content"]
    assert answer.startswith("Approved by ") and answer.endswith(found)
    client.force_login(User.objects.get(pk=somebody("lena", "legal", "operator", "auditor").person))
    for place in (
        f"/inbox/{row.id}",
        f"/runs/{run.id}",
        "/audit",
        f"/api/v1/approvals/{row.id}",
        f"/api/v1/runs/{run.id}",
        f"/api/v1/runs/{run.id}/events",
        "/api/v1/audit",
    ):
        page = client.get(place)
        assert page.status_code == 200, place
        text = page.content.decode()
        assert "expired" not in text, place
        if str(row.id) in place:
            assert found in text, place


def test_a_retired_policy_stops_nothing_its_yes_is_used(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent, admin = ordering(tools), boss()
    put(admin)
    run = stage.start(agent)
    assert stage.drive() == "parked"
    services.retire("orders", by=admin, justification=WHY)
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed()) == 1
    assert events(run, e.ToolInvoked)[0].grant is not None and problems(run) == []
    assert [(x.revision, x.live) for x in PolicyRevision.objects.order_by("revision")] == [(1, 1), (2, 0)]


def test_each_act_is_on_record_with_who_and_why_before_and_after(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    turned(admin, effect="deny")
    services.retire("orders", by=admin, justification=WHY)
    again = put(admin)
    rows = list(ActRecord.objects.order_by("id"))
    assert [row.action for row in rows] == ["policy", "policy_change", "policy_retire", "policy"]
    assert {(row.by, row.role, row.subject, row.justification) for row in rows} == {
        ("user:boss", "admin", "policy orders", WHY)
    }
    assert (rows[1].before["effect"], rows[1].after["effect"], rows[1].after["version"]) == ("require", "deny", 2)
    assert rows[2].after == {} and again.version == 3 and all(authentic(rows))
    assert in_force.read_policies().problem == ""


@pytest.mark.parametrize("who", ["operator", "approver_legal", "integrator", "auditor"])
def test_nobody_but_an_administrator_changes_anything(stage: Stage, tools: Toolbox, who: str) -> None:
    ordering(tools)
    put(boss())
    by = somebody("nobody", who)
    for act in (
        lambda: put(by, name="mine"),
        lambda: turned(by, effect="deny"),
        lambda: services.retire("orders", by=by, justification=WHY),
    ):
        changed(act, "Only an administrator", Forbidden)


@pytest.fixture
def admin(stage: Stage, tools: Toolbox) -> Actor:
    ordering(tools)
    return boss()


@each_case(
    ("given", "words"),
    [
        ({"agent": "nobody"}, "agent is not a known agent"),
        ({"tool": "nothing"}, "tool is not a known tool"),
        ({"queue": "nowhere"}, "queue does not exist"),
        ({"queue": ""}, "queue does not exist"),
        (
            {"condition": "args.amount > much"},
            r"condition compares args.amount with 'much', which isn't a number \(char",
        ),
        ({"condition": "args.amout > 5"}, r"condition uses args.amout, which isn't an input field of the tool"),
        ({"condition": "args.name > 5"}, "which is a text, with >"),
        ({"condition": "cost > 5 and"}, r"\(character 13\)"),
        ({"condition": "nonsense = 5"}, "uses nonsense, which isn't a field of calls"),
        ({"condition": "source = people"}, "compares source with 'people'"),
        ({"condition": 'args.name = "a'}, "unclosed quotation mark"),
        ({"tool": "", "condition": "args.amount > 5"}, "without a tool"),
        ({"rule": "  "}, "rule is empty"),
        ({"rule": "see \u202e evil"}, "invisible characters"),
        ({"tool": ""}, "every call of every agent"),
        ({"tool": "", "confirm": "yes"}, "every call of every agent"),
        ({"effect": "deny", "queue": "legal"}, "has no function in a policy with effect deny"),
        ({"name": "Orders!"}, "name may hold only"),
    ],
)
def test_what_is_wrong_is_refused_by_name(admin: Actor, given: dict[str, Any], words: str) -> None:
    changed(lambda: put(admin, **given), words)


def test_a_policy_for_every_call_must_be_typed_out(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent, admin = ordering(tools, "look"), boss()
    put(admin, tool="", effect="deny", confirm="every call")
    run = stage.start(agent)
    assert stage.drive() == "completed" and output(run)[0] == "denied" and outside.requests == []


def test_a_policy_needs_an_open_queue_and_keeps_it_from_removal(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin, tool="look")
    changed(lambda: queues.remove("legal", by=admin, justification=WHY), "the policy orders uses it", queues.QueueInUse)
    queues.close("legal", by=admin, justification=WHY)
    changed(lambda: put(admin, name="more"), "decides nothing now")


def test_who_changes_what_somebody_has_changed_meanwhile_is_told(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    turned(admin, effect="deny")
    changed(
        lambda: services.change("orders", PolicyBody(seen=1, **body("allow")), by=admin),
        "is now at version 2",
        services.PolicyChanged,
    )
    changed(lambda: turned(admin, effect="deny"), "Nothing would change")
    changed(lambda: put(admin), "in force")
    changed(lambda: services.retire("orders", by=admin, justification=" "), "reason|why|justif", JustificationRequired)


def test_many_at_once_leave_one_version_after_the_other(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    made = at_once(*(lambda n=n: turned(admin, rule=f"rule {n}") for n in range(MANY)))
    assert all(isinstance(x, Policy) for x in made), [x for x in made if not isinstance(x, Policy)][:3]
    assert sorted(x.version for x in made) == list(range(2, MANY + 2))
    assert Policy.objects.filter(ended_at__isnull=True).count() == 1 and in_force.read_policies().problem == ""
    assert list(PolicyRevision.objects.order_by("revision").values_list("revision", flat=True)) == list(
        range(1, MANY + 2)
    )


def execute(sql: str) -> Callable[[], None]:
    def act() -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    return act


FORGED = {
    "loosened": "UPDATE approvals_policy SET effect = 'allow', queue = ''",
    "narrowed": "UPDATE approvals_policy SET condition = 'args.amount > 99'",
    "ended": "UPDATE approvals_policy SET ended_at = now(), ended_by = 'user:boss'",
    "added": """INSERT INTO approvals_policy (name, version, agent, tool, condition, kinds, effect, queue,
                within_seconds, rule, set_by, made_at, ended_by, code)
                SELECT 'extra', 1, '', '', '', '{}', 'allow', '', 0, 'x', set_by, made_at, '', code
                FROM approvals_policy LIMIT 1""",
    "turned": """INSERT INTO runs_policyrevision SELECT revision + 1, 0, policies, set_by, at, code
                 FROM runs_policyrevision ORDER BY revision DESC LIMIT 1""",
    "ended and turned": """UPDATE approvals_policy SET ended_at = now(), ended_by = 'x';
                 INSERT INTO runs_policyrevision SELECT revision + 1, 0, policies, set_by, at, code
                 FROM runs_policyrevision ORDER BY revision DESC LIMIT 1""",
}


@pytest.mark.parametrize("how", FORGED)
def test_what_is_changed_past_us_lets_nothing_through_until_an_administrator_has_set_it_right(
    stage: Stage, tools: Toolbox, outside: Outside, how: str
) -> None:
    agent, admin = ordering(tools), boss()
    put(admin, effect="deny")
    execute(FORGED[how])()
    run = stage.start(agent)
    assert stage.drive() == "operator" and outside.requests == []
    assert events(run, e.OperatorNeeded)[0].reason == "policies_not_genuine"
    changed(lambda: put(admin, name="more"), "Nothing was changed", services.PoliciesDamaged)
    changed(lambda: services.restore(by=FIONA, justification=WHY), "Only an administrator", Forbidden)
    if how in ("loosened", "narrowed"):  # its text has lost its author: it is retired and set again
        services.restore(by=admin, justification=WHY)
        put(admin, effect="deny")
    else:
        services.restore(by=admin, justification=WHY)
    assert in_force.read_policies().problem == ""
    stage.policies = None
    again = stage.start(agent)
    assert stage.drive() == "completed" and output(again)[0] == "denied" and outside.requests == []


def test_what_was_in_force_can_be_neither_taken_away_nor_brought_back(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    services.retire("orders", by=admin, justification=WHY)
    for sql in (
        "DELETE FROM approvals_policy",
        "UPDATE approvals_policy SET ended_at = NULL, ended_by = ''",
        "DELETE FROM runs_policyrevision",
        "UPDATE runs_policyrevision SET live = 5",
    ):
        before = dump()
        with pytest.raises(ProgrammingError), transaction.atomic():
            execute(sql)()
        assert dump() == before
    changed(lambda: services.restore(by=admin, justification=WHY), "not needed")


def test_no_intent_is_written_by_policies_that_are_no_longer_in_force(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """The rule changes right before the intent, and the call is checked again."""
    agent, admin = ordering(tools), boss()
    put(admin, effect="allow")
    run = stage.start(agent)
    stage.drive()
    done: list[int] = []

    def at(point: str, tool: str) -> None:
        if point == "CP1" and not done:
            done.append(1)
            in_thread(lambda: turned(admin, effect="deny"))

    stage.at = at
    run = stage.start(agent)
    assert stage.drive() == "completed" and output(run)[0] == "denied" and len(outside.requests) == 1
    assert [(x.effect, x.revision) for x in events(run, e.PolicyApplied)] == [("deny", 2)] and problems(run) == []


def test_a_repeat_is_held_to_what_is_in_force_too(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The process knows the policies of a moment ago; the rule changes right before the repeat."""
    agent, admin = ordering(tools), boss()
    put(admin, effect="allow")
    run = stage.start(agent)
    stage.kill_at = [("CP4", "order")]
    assert stage.drive() == "killed" and len(outside.requests) == 1
    failover.worker_died(stage.worker.id, "the test says so")
    stage.worker = stage.hire()
    Run.objects.update(ready_at="2020-01-01T00:00:00Z")
    done: list[int] = []

    def at(point: str, tool: str) -> None:
        if point == "CP1" and not done:
            done.append(1)
            in_thread(lambda: turned(admin, effect="deny"))

    stage.at = at
    assert stage.settle(run) == "parked" and done and len(outside.requests) == 1
    assert waiting(run)[0].kind == "reconcile" and problems(run) == []


def test_a_try_in_place_is_held_to_what_is_in_force_too(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """Two connections are refused; by then the rule has changed without the worker knowing."""
    agent, admin = ordering(tools), boss()
    put(admin, effect="allow")
    stage.retry = IN_PLACE

    def forbid(_: Any) -> None:
        in_thread(lambda: turned(admin, effect="deny"))
        raise NotSent("refused")

    outside.trouble("order", NotSent("refused"), forbid)
    run = stage.start(agent)
    assert stage.drive() == "parked" and outside.requests == []
    assert waiting(run)[0].kind == "reconcile" and problems(run) == []


def test_verification_finds_calls_that_left_unjudged(stage: Stage, tools: Toolbox) -> None:
    run = stage.start(ordering(tools))
    assert stage.drive() == "completed" and problems(run) == []
    late = PolicyRevision(revision=1, live=1, policies="", set_by="os:root", at=run.created_at - timedelta(hours=1))
    late.seal()
    late.save(force_insert=True)
    assert any("none was checked" in problem for problem in problems(run))


@pytest.mark.parametrize("point", ["CP0", "CP1", "CP2", "CP4", "CP6", "CP8"])
@pytest.mark.parametrize("effect", ["deny", "require"])
def test_a_worker_dies_and_the_policy_gets_stricter(
    stage: Stage, tools: Toolbox, outside: Outside, point: str, effect: str
) -> None:
    agent, admin = ordering(tools), boss()
    put(admin, queue="finance_po")
    run = stage.start(agent)
    assert stage.settle(run) == "parked"
    stage.decide(run)
    stage.kill_at = [(point, "order"), (point, "")]
    how = stage.drive()
    turned(admin, effect=effect)
    sent = len(outside.requests)
    if how == "killed":
        failover.worker_died(stage.worker.id, "the test says so")
        stage.worker = stage.hire()
        Run.objects.filter(ended_at__isnull=True).update(ready_at="2020-01-01T00:00:00Z")
        stage.settle(run)
    assert len(outside.requests) == sent, "nothing more leaves under what was in force before"
    assert problems(run) == []


def test_tags_and_the_requester_are_matched(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent, admin = ordering(tools), boss()
    put(admin, effect="deny", tool="", condition="tags has vip and not requester = key:shop")
    put(admin, name="second", effect="deny", tool="", condition="tags has vip and requester = key:shop")
    run = stage.start(agent)
    assert stage.drive() == "completed" and output(run) != ["denied", "second", 1]
    run = lifecycle.start(agent.graph_id, {}, by=SHOP, tags=["vip"])
    stage.policies = None
    assert stage.drive() == "completed" and output(run) == ["denied", "second", 1]


def test_a_further_attempt_that_people_are_asked_about_verifies(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    outside.trouble("order", BusinessFailure("out of stock"))
    run = stage.start(ordering(tools))
    assert stage.settle(run) == "failed"
    put(boss())
    lifecycle.retry(run.pk, by=OLGA, justification=WHY)
    stage.policies = None
    assert stage.settle(run) == "parked" and problems(run) == []
    (answer,) = events(run, e.PolicyApplied)
    assert answer.attempt == 1
    stage.decide(run)
    assert stage.settle(run) == "completed" and problems(run) == []


@pytest.mark.parametrize("how", ["both roles", "as a deputy", "by a deputy"])
def test_one_person_gives_one_yes_to_all_queues(stage: Stage, tools: Toolbox, outside: Outside, how: str) -> None:
    agent, admin = ordering(tools), boss()
    put(admin, queue="finance_po")
    run = stage.start(agent)
    assert stage.drive() == "parked"
    first = Approval.objects.get(run=run, state="open")
    roles = {queue.name: queue.role for queue in Queue.objects.filter(name__in=["finance_po", "legal"])}
    both = somebody("berta", *(roles.values() if how == "both roles" else [roles["legal"]]))
    other = somebody("otto", roles["finance_po"])

    def yes(case: Approval, by: Actor) -> Approval:
        by = replace(by, role=roles[case.queue])
        return decide(case.id, verdict="approve", plan_hash=case.plan_hash, justification="as quoted", by=by)

    if how == "both roles":
        yes(first, both)
    else:  # the text of either is the other's
        deputy, principal = (both, other) if how == "as a deputy" else (other, both)
        if how == "by a deputy":
            User.objects.get(pk=both.person).groups.add(Group.objects.get_or_create(name=roles["finance_po"])[0])
            deputy = somebody("emil", roles["legal"])
        away(principal, deputy.name, queue="finance_po")
        yes(first, deputy)
    turned(admin)
    assert stage.drive() == "parked" and outside.requests == []
    second = Approval.objects.get(run=run, state="open")
    with pytest.raises(AlreadyVoted, match="Each person has one vote"):
        yes(second, both)
    assert Approval.objects.get(pk=second.pk).state == "open"
    yes(second, somebody("lena", roles["legal"]))
    assert stage.drive() == "completed" and len(outside.executed()) == 1
    assert problems(run) == []


async def ordered(ctx: Context, tools: Toolbox) -> End:
    try:
        return End(await ctx.call(tools.order, Item(name="po", amount=5)))
    except PolicyDenied as no:
        return End(Done(ref=f"denied by {no.policy}"))


def renewing(tools: Toolbox) -> Agent:
    async def node(state: Notes, ctx: Context) -> Any:
        return await ordered(ctx, tools) if state.seen else Renew(Notes(seen=["renewed"]))

    return agent_of(node, tools=tools.all(), output=Done)


def handing(tools: Toolbox) -> Agent:
    async def work(state: Notes, ctx: Context) -> Any:
        return await ordered(ctx, tools)

    agent_of(work, name="policy-desk", tools=tools.all(), output=Done)

    async def node(state: Notes, ctx: Context) -> Any:
        return Handoff("policy-desk", Asked(text="over to you"))

    return agent_of(node, tools=tools.all(), output=Done)


def parenting(tools: Toolbox) -> Agent:
    """Return an agent whose child continues as new: two links up."""
    helper = renewing(tools)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.child(helper, Asked(text="a"))).ref)

    return agent_of(node, name="parent")


# A condition on how a run was started, with a start for which it holds and one for which it doesn't.
STARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "requester = key:shop": ({"by": SHOP}, {"by": OLGA}),
    "tags has vip": ({"by": SHOP, "tags": ["vip", "eu"]}, {"by": SHOP, "tags": ["eu"]}),
}


@pytest.mark.parametrize("made", [renewing, handing, parenting])
@pytest.mark.parametrize("condition", STARTS)
def test_a_policy_on_a_start_counts_in_all_that_comes_of_the_run(
    stage: Stage, tools: Toolbox, outside: Outside, made: Callable[[Toolbox], Agent], condition: str
) -> None:
    agent, (bound, free) = made(tools), STARTS[condition]
    put(boss(), effect="deny", condition=condition)
    lifecycle.start(agent.graph_id, {}, **bound)
    everything(stage)
    assert outside.requests == []
    lifecycle.start(agent.graph_id, {}, **free)
    everything(stage)
    assert len(outside.executed()) == 1, "of a run that was started otherwise nothing is refused"
    for run in Run.objects.all():
        assert problems(run) == []


@pytest.mark.parametrize("made", [renewing, handing, parenting])
@pytest.mark.parametrize("condition", STARTS)
def test_a_trial_on_a_start_covers_related_runs(
    stage: Stage, tools: Toolbox, made: Callable[[Toolbox], Agent], condition: str
) -> None:
    agent, (bound, free) = made(tools), STARTS[condition]
    for start in (bound, bound, free):
        lifecycle.start(agent.graph_id, {}, **start)
        everything(stage)
    found = trying.try_policy(TryBody(effect="deny", tool="order", condition=condition))
    assert (found.calls, found.denied.calls, found.unsure) == (3, 2, 0)


def test_an_unknown_requester_counts_as_restricted(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """The row points elsewhere than the journal."""
    agent = renewing(tools)
    put(boss(), effect="deny", condition="requester = key:shop")
    other = lifecycle.start(agent.graph_id, {}, by=OLGA)
    everything(stage)
    assert len(outside.executed()) == 1
    lifecycle.start(agent.graph_id, {}, by=SHOP)
    stage.drive()
    successor = Run.objects.filter(first__isnull=False).latest("created_at")
    tamper("UPDATE runs_run SET first = %s WHERE id = %s", other.pk, successor.pk)
    everything(stage)
    assert len(outside.executed()) == 1


@each_case("condition", ["requester = key:shop", "requester is set and requester != user:olga", "not requester is set"])
def test_an_unknown_actor_counts_as_a_person(condition: str) -> None:
    asking = Asking(
        run_id="1",
        agent="a",
        version="1",
        tool="order",
        replay_class="",
        risk="",
        arguments={},
        source="",
        requester=None,
        cost_micro=None,
    )
    for effect in STRICTEST:
        rule = Rule("orders", 1, "", "", parse_condition(condition, []), effect, "", timedelta(days=1), "")
        assert rule.matches(asking) is (effect != "allow")


def test_rewritten_tags_lead_no_call_past_a_policy(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    agent = renewing(tools)
    put(boss(), effect="deny", condition="tags has vip")
    run = lifecycle.start(agent.graph_id, {}, by=SHOP, tags=["vip"])
    as_the_application(f"UPDATE runs_run SET tags = '[]' WHERE id = '{run.pk}'")
    with pytest.raises(ProgrammingError, match="permission denied"):
        as_the_application(f"DELETE FROM runs_runtag WHERE run_id = '{run.pk}'")
    everything(stage)
    assert outside.requests == []


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


def attempt(effect: str = "require", **more: Any) -> trying.TriedRow:
    queue = {"queue": "legal"} if effect == "require" else {}
    return trying.try_policy(TryBody(**{"effect": effect, "tool": "order", **queue, **more}))


def counts(found: trying.TriedRow) -> tuple[int, int, int, int]:
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
    monkeypatch.setattr(trying, "MAX_SECONDS", -1.0)
    found = attempt()
    assert found.is_cut and found.calls == 0
    monkeypatch.setattr(trying, "MAX_SECONDS", 60.0)
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
    monkeypatch.setattr(trying, "MAX_BYTES", 1)
    assert counts(attempt("deny", condition="args.amount > 10")) == (3, 0, 2, 0) and max(read) == 1
    assert counts(attempt("deny", tool="mail", condition="args.amount > 10")) == (3, 0, 0, 0)
    assert sum(read) == 3, "of another tool's calls none is read"


def test_a_call_that_nobody_can_read_is_counted_as_one(stage: Stage, tools: Toolbox) -> None:
    """Endlessly nested lists."""
    history(stage, tools, 5, 20)
    sealed = "UPDATE ledger_event SET sealed = %s WHERE kind = 'ToolInvoked' AND fact = 'intent' AND seq < %s"
    assert tamper(sealed, b"\x00" + b"[" * 100_000, 99) == 2
    found = attempt("deny", condition="args.amount > 10")
    assert (found.calls, found.unreadable) == (0, 2)
    assert attempt("deny", condition="requester = key:shop").unreadable == 0


def test_the_clock_is_read_for_each_call(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
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
    getvalue = out.getvalue()
    assert "known@1\tdeny\tany agent mail" in getvalue and "finance_po" in getvalue, "gates in code are among them"
    assert "2 calls since" in getvalue and "held for approval\t1\t" in getvalue and "queue legal\t1" in getvalue
    with pytest.raises(CommandError, match="not a known tool"):
        call_command("policies", "try", tool="nothing", effect="deny")
    assert Policy.objects.count() == 1


@pytest.mark.parametrize("types_amount", [True, False])
def test_a_second_person_tries_a_proposal(client: Client, stage: Stage, tools: Toolbox, types_amount: bool) -> None:
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
    response = client.post("/policies/tries", sent)
    page = response.content.decode()
    assert response.status_code == 200 and "Tried on history" in page and "Not tried" not in page
    assert re.search(r'held for approval</b></td><td class="num" data-label="calls">2</td>', page)
    assert not Policy.objects.exists()


def test_a_condition_reveals_no_arguments_to_who_may_not_read_them(stage: Stage, tools: Toolbox) -> None:
    history(stage, tools, 1, 20)
    Group.objects.get(name="operator").permissions.clear()
    body = {"effect": "deny", "tool": "order", "rule": "none"}
    operator, auditor = (Api(issue_key(person(role, role), "test")) for role in ("operator", "auditor"))
    by_halves = body | {"condition": "args.amount > 10"}
    assert is_problem(operator.post("policies/try", by_halves), 403, "payloads-hidden")
    assert operator.post("policies/try", body).json()["denied"]["calls"] == 2
    assert auditor.post("policies/try", by_halves).json()["denied"]["calls"] == 1
    admin = Api(issue_key(person("root", is_superuser=True, is_staff=True), "test"))
    denied = admin.post("policies/try", by_halves).json()["denied"]
    assert denied["calls"] == 1 and denied["examples"] == [], "who sees no run is told none"
