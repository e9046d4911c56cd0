"""Policies as data: an administrator's change counts for every call that hasn't left, is on record, and nobody else's
does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.utils import ProgrammingError
from django.test import Client

from approvals.genuine import genuine
from approvals.models import Approval, Policy
from approvals.policies import acts, inforce
from approvals.policies.bodies import NewPolicyBody, PolicyBody
from approvals.queues import acts as queues
from approvals.rules.rows import seal
from durableagents import BusinessFailure, Context, End, NotSent, PolicyDenied
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, JustificationRequired
from ledger.models import ActRecord
from runs.engine.agents import Agent
from runs.models import PolicyRevision, Run
from runs.services import lifecycle
from runs.workers import failover
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.approvals.test_queues import changed
from tests.integration.runs.stage import Stage, at_once, dump, events, in_thread, output, problems, waiting
from tests.world import FIONA, IN_PLACE, OLGA, SHOP, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


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
    return acts.create(NewPolicyBody(name=name, **body(effect, **more)), by=by)


def turned(by: Actor, name: str = "orders", effect: str = "require", **more: Any) -> Policy:
    return acts.change(name, PolicyBody(**body(effect, **more)), by=by)


def test_a_policy_holds_up_every_call_that_it_matches_from_its_commit_on(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    agent, admin = ordering(tools), boss()
    run = stage.start(agent)
    assert stage.drive() == "completed"  # and its worker knows that there are none
    put(admin, condition="args.amount >= 5")
    run = stage.start(agent)
    assert stage.drive() == "parked" and len(outside.requests) == 1
    approval = Approval.objects.get(run=run)
    assert (approval.queue, approval.rule) == ("legal", "the board says so")
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed()) == 2
    told = events(run, e.PolicyApplied)
    assert [(x.effect, x.policy, x.version, x.revision, x.queues) for x in told] == [
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
    """A run whose call finance has said yes to, when its policy began to ask legal."""
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


def test_whoever_a_policy_asks_besides_reads_everywhere_that_the_first_yes_has_not_expired(
    client: Client, stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    run = asked_besides(stage, tools, outside)
    asked = Approval.objects.get(run=run, state="open")
    told = "the call was not made yet, for the policy orders (version 2) asks legal as well."
    (said,) = asked.evidence[0]["content"]
    assert said.startswith("Approved by ") and said.endswith(told)
    client.force_login(User.objects.get(pk=somebody("lena", "legal", "operator", "auditor").person))
    for place in (
        f"/inbox/{asked.id}",
        f"/runs/{run.id}",
        "/audit",
        f"/api/v1/approvals/{asked.id}",
        f"/api/v1/runs/{run.id}",
        f"/api/v1/runs/{run.id}/events",
        "/api/v1/audit",
    ):
        page = client.get(place)
        assert page.status_code == 200, place
        text = page.content.decode()
        assert "expired" not in text, place
        if str(asked.id) in place:
            assert told in text, place


def test_a_retired_policy_stops_nothing_and_what_it_asked_is_still_used_up(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    agent, admin = ordering(tools), boss()
    put(admin)
    run = stage.start(agent)
    assert stage.drive() == "parked"
    acts.retire("orders", by=admin, justification=WHY)
    stage.decide(run)
    assert stage.drive() == "completed" and len(outside.executed()) == 1
    assert events(run, e.ToolInvoked)[0].grant is not None and problems(run) == []
    assert [(x.revision, x.live) for x in PolicyRevision.objects.order_by("revision")] == [(1, 1), (2, 0)]


def test_each_act_is_on_record_with_who_and_why_before_and_after(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    turned(admin, effect="deny")
    acts.retire("orders", by=admin, justification=WHY)
    again = put(admin)
    rows = list(ActRecord.objects.order_by("id"))
    assert [row.action for row in rows] == ["policy", "policy_change", "policy_retire", "policy"]
    assert {(row.by, row.role, row.subject, row.justification) for row in rows} == {
        ("user:boss", "admin", "policy orders", WHY)
    }
    assert (rows[1].before["effect"], rows[1].after["effect"], rows[1].after["version"]) == ("require", "deny", 2)
    assert rows[2].after == {} and again.version == 3 and all(genuine(rows))
    assert inforce.now().problem == ""


@pytest.mark.parametrize("who", ["operator", "approver_legal", "integrator", "auditor"])
def test_nobody_but_an_administrator_changes_anything(stage: Stage, tools: Toolbox, who: str) -> None:
    ordering(tools)
    put(boss())
    by = somebody("nobody", who)
    for act in (
        lambda: put(by, name="mine"),
        lambda: turned(by, effect="deny"),
        lambda: acts.retire("orders", by=by, justification=WHY),
    ):
        changed(act, "Only an administrator", Forbidden)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"agent": "nobody"}, "agent is no agent"),
        ({"tool": "nothing"}, "tool is no tool"),
        ({"queue": "nowhere"}, "queue is no queue"),
        ({"queue": ""}, "queue is no queue"),
        ({"condition": "args.amount > much"}, r"condition compares args.amount with 'much', which is no number \(char"),
        ({"condition": "args.amout > 5"}, r"condition asks for args.amout, which the tool's input has not"),
        ({"condition": "args.name > 5"}, "which is a text, by >"),
        ({"condition": "cost > 5 and"}, r"\(character 13\)"),
        ({"condition": "nonsense = 5"}, "asks for nonsense, which no call has"),
        ({"condition": "source = people"}, "compares source with 'people'"),
        ({"condition": 'args.name = "a'}, "never closed"),
        ({"tool": "", "condition": "args.amount > 5"}, "names no tool"),
        ({"rule": "  "}, "rule is empty"),
        ({"rule": "see \u202e evil"}, "can't be seen"),
        ({"tool": ""}, "every call of every agent"),
        ({"tool": "", "confirm": "yes"}, "every call of every agent"),
        ({"effect": "deny", "queue": "legal"}, "asked nothing by a policy that says deny"),
        ({"name": "Orders!"}, "name is no name"),
    ],
)
def test_what_is_wrong_is_refused_by_name_and_nothing_is_done(
    stage: Stage, tools: Toolbox, given: dict[str, Any], words: str
) -> None:
    ordering(tools)
    admin = boss()
    changed(lambda: put(admin, **given), words)


def test_a_policy_for_every_call_is_typed_out_and_counts_for_each(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    agent, admin = ordering(tools, "look"), boss()
    put(admin, tool="", effect="deny", confirm="every call")
    run = stage.start(agent)
    assert stage.drive() == "completed" and output(run)[0] == "denied" and outside.requests == []


def test_a_closed_queue_is_no_queue_for_a_policy_and_one_with_a_policy_is_not_removed(
    stage: Stage, tools: Toolbox
) -> None:
    ordering(tools)
    admin = boss()
    put(admin, tool="look")
    changed(lambda: queues.remove("legal", by=admin, justification=WHY), "the policy orders asks", queues.QueueInUse)
    queues.close("legal", by=admin, justification=WHY)
    changed(lambda: put(admin, name="more"), "decides nothing now")


def test_who_changes_what_somebody_has_changed_meanwhile_is_told(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    turned(admin, effect="deny")
    changed(
        lambda: acts.change("orders", PolicyBody(seen=1, **body("allow")), by=admin),
        "at version 2 by now",
        acts.PolicyChanged,
    )
    changed(lambda: turned(admin, effect="deny"), "as it was")
    changed(lambda: put(admin), "in force")
    changed(lambda: acts.retire("orders", by=admin, justification=" "), "reason|why|justif", JustificationRequired)


def test_sixty_four_at_once_leave_one_version_after_the_other(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    made = at_once(*(lambda n=n: turned(admin, rule=f"rule {n}") for n in range(64)))
    assert all(isinstance(x, Policy) for x in made), [x for x in made if not isinstance(x, Policy)][:3]
    assert sorted(x.version for x in made) == list(range(2, 66))
    assert Policy.objects.filter(ended_at__isnull=True).count() == 1 and inforce.now().problem == ""
    assert list(PolicyRevision.objects.order_by("revision").values_list("revision", flat=True)) == list(range(1, 66))


# --- past us ----------------------------------------------------------------------------------------------------------


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
    changed(lambda: put(admin, name="more"), "Nothing was changed", acts.PoliciesDamaged)
    changed(lambda: acts.restore(by=FIONA, justification=WHY), "Only an administrator", Forbidden)
    if how in ("loosened", "narrowed"):  # what it said is nobody's word any more: it ends, and is said anew
        acts.restore(by=admin, justification=WHY)
        put(admin, effect="deny")
    else:
        acts.restore(by=admin, justification=WHY)
    assert inforce.now().problem == ""
    stage.policies = None
    again = stage.start(agent)
    assert stage.drive() == "completed" and output(again)[0] == "denied" and outside.requests == []


def test_what_was_in_force_can_be_neither_taken_away_nor_brought_back(stage: Stage, tools: Toolbox) -> None:
    ordering(tools)
    admin = boss()
    put(admin)
    acts.retire("orders", by=admin, justification=WHY)
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
    changed(lambda: acts.restore(by=admin, justification=WHY), "not needed")


# --- exactly ----------------------------------------------------------------------------------------------------------


def test_no_intent_is_written_by_policies_that_are_no_longer_in_force(
    stage: Stage, tools: Toolbox, outside: Outside
) -> None:
    """At the very last moment before the intent, the rule changes: it is judged anew."""
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
    """Whoever repeats a call knows the policies of a moment ago; at the last moment before, the rule changes."""
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
    """Refused on connection twice; by then the rule has changed, and the worker doesn't know it."""
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
    seal(late)
    late.save(force_insert=True)
    assert any("none judged the call" in problem for problem in problems(run))


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
    (said,) = events(run, e.PolicyApplied)
    assert said.attempt == 1
    stage.decide(run)
    assert stage.settle(run) == "completed" and problems(run) == []
