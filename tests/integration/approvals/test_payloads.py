"""Payloads are shown to people with the right, owners and deciders on every page; others see what a run does."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import get_resolver, reverse
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, ToolCallPart

from approvals.models import Approval
from durableagents import Assistant, Context, End, Failure, KeyRejected, TransportError
from durableagents.identity import own_tags, rights
from durableagents.identity.auth import issue_key
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import JustificationRequired, NotFound
from ledger.models import AccountRecord, ActRecord, LedgerEntry
from ledger.redacted import masked_key
from ledger.web.page_base import SharedPage
from ledger.web.roles import AUDITOR, INTEGRATOR, OPERATOR, ROLES
from ledger.web.seeing.viewers import EVERYTHING, READ_PAYLOADS, Viewer, viewer_of
from runs.engine.agents import Agent
from runs.models import Run, Wait
from runs.services import lifecycle
from runs.services.messages import sending
from tests.apps import offered
from tests.cases import each_case
from tests.integration.approvals.setup import WHY, signed_in, somebody
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, events
from tests.integration.scale.test_statements import is_read, named
from tests.tampering import as_stored
from tests.tiers import many
from tests.world import OLGA, SHOP, Done, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
# A unique word for each kind of payload.
INPUT, STATE, ARGUMENT, SAID, MAIL, SEEN, ERROR, TROUBLE, OUTPUT, PLANNED, REJECTED = (
    "zz-input zz-state zz-argument zz-said zz-mail zz-view zz-error zz-trouble zz-output zz-planned zz-rejected"
).split()
PLANS = offered("situations", "plan_run")
EVERYWHERE = {INPUT, STATE, ARGUMENT, SAID, MAIL, SEEN, ERROR, TROUBLE, OUTPUT, REJECTED} | {PLANNED for _ in PLANS}
AT_FINANCE, AT_LEGAL = {"zz-plan", "$5000"}, {"zz-prefilled"}
TABS = ("timeline", "transcript", "checkpoints", "decisions", "journal")
# Other people's, or of no run.
BESIDES = {"api-schema", "healthz", "readyz", "login", "sign_in_code", "sign_in_factor", "sso", "sso_callback", "start"}
# One of each kind of page and list; together they show all that `EVERYWHERE` and the case at finance have.
FEW = {"run", "runs", "plan", "fork", "schedules", "approval", "overview", "api-run", "api-runs", "api-run-view"}


class Shown(BaseModel):
    what: str


def teller(tools: Toolbox) -> Agent:
    """Return an agent with payloads of every kind; its input says how it ends."""

    def think(messages: list[Any], info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": SAID})])

    mind = Assistant(name="mind", instructions="", output=Done, offline=think)

    async def first(state: Notes, ctx: Context) -> Any:
        await ctx.think(mind, "what?")
        await ctx.call(tools.hooked, Item(name=ARGUMENT))
        state.seen = [STATE]
        return "second"

    async def second(state: Notes, ctx: Context) -> End:
        if state.asked.amount == 2:
            raise Failure(ERROR)
        if state.asked.amount == 3:
            await ctx.call(tools.mail, Item(name=ARGUMENT))
        if state.asked.amount == 4:
            return End(OUTPUT)
        if state.asked.amount == 5:
            await ctx.call(tools.order, Item(name=ARGUMENT))
        await ctx.gather(
            ctx.call(tools.pay, Item(name="zz-plan", amount=5000)),
            ctx.ask("legal", title="How many?", schema=Item, prefilled=Item(name="zz-prefilled")),
        )
        return End("well")

    agent = agent_of(first, second, tools=tools.all(), assistants=[mind])

    @agent.message(takes=Item)
    def note(state: Notes, body: Item) -> None:
        state.seen.append(body.name)

    @agent.view("summary", answers=Shown)
    def summary(state: Notes) -> Shown:
        return Shown(what=SEEN)

    return agent


@pytest.fixture
def told(stage: Stage, tools: Toolbox, outside: Outside) -> list[Run]:
    return _runs(stage, tools, outside, SHOP)


def _runs(stage: Stage, tools: Toolbox, outside: Outside, by: Actor, **more: Any) -> list[Run]:
    agent, runs = teller(tools), []
    outside.trouble("mail", TransportError(TROUBLE), when="after")
    outside.trouble("order", KeyRejected(REJECTED))
    for amount in (1, 2, 3, 4, 5):
        run = lifecycle.start(agent.graph_id, {"text": INPUT, "amount": amount}, by=by, **more)
        if amount == 1:
            sending.send(run.pk, "note", {"name": MAIL}, by=OLGA)
        stage.drive()
        runs.append(run)
    for plan_run in PLANS:
        plan_run(agent.graph_id, PLANNED, by=by if by.person is not None else replace(OLGA, person=404))
    states = " ".join(str(Run.objects.get(pk=run.pk).state) for run in runs)
    assert states == "waiting_human failed waiting_human completed waiting_human"
    return runs


def pages(runs: list[Run], client: Client, key: str, only: Set[str] | None = None) -> Iterator[tuple[str, str, int]]:
    """Yield name, text and status of every readable page and list of these runs, or only of the named ones."""
    approval = Approval.objects.filter(run_id=runs[0].pk).first()
    values: dict[str, Any] = {
        "approval_id": approval.id if approval else UUID(int=4),
        "graph_id": runs[0].graph_id,
        "reference": runs[0].graph_id,
        "queue": "legal",
    }
    program = Client(headers={"Authorization": f"Bearer {key}"})
    for name, route in named(get_resolver()):
        if not is_read(route) or name in BESIDES or (only is not None and name not in only):
            continue
        parts = list(route.pattern.converters)
        for run in runs if "run_id" in parts else runs[:1]:
            given = values | {"run_id": run.pk, "name": "summary" if "view" in name else "1"}
            if not set(parts) <= given.keys():
                continue
            address = reverse(name, kwargs={part: given[part] for part in parts})
            queries = [f"?tab={tab}" for tab in TABS] if name == "run" else [""]
            queries += ["?visit=1", "?visit=2"] if name in ("fork", "api-run-fork") else []
            # Other pages render what they always do, in another layout.
            is_live = name == "run" or issubclass(getattr(route.callback, "view_class", object), SharedPage)
            for query in [*queries, "?fragment=live"] if is_live else queries:
                answer = (program if name.startswith("api-") else client).get(address + query)
                yield name, answer.getvalue().decode(), answer.status_code


def words(runs: list[Run], client: Client, key: str, only: Set[str] | None = None) -> dict[str, set[str]]:
    """Return the pages on which each secret word and idempotency key appears."""
    keys = set(
        LedgerEntry.objects.filter(run_id__in=[r.pk for r in runs], key__isnull=False).values_list("key", flat=True)
    )
    whole = {x.payload["key"] for run in runs for x in events(run, e.ToolInvoked)} - {None}
    assert keys and keys == {masked_key(each) for each in whole} and not keys & whole
    found: dict[str, set[str]] = {}
    for name, text, status in pages(runs, client, key, only):
        assert status in (200, 403, 404), (name, status, text[:500])
        assert not [each for each in whole if each in text], name
        for word in EVERYWHERE | AT_FINANCE | AT_LEGAL | keys:
            if word in text:
                found.setdefault("a key" if word in keys else word, set()).add(name)
    return found


def sight(role: str, *more: str) -> tuple[Client, str, Actor]:
    actor = somebody(f"eve-{role}", role, *more)
    user, client = User.objects.get(pk=actor.person), Client()
    client.force_login(user)
    return client, issue_key(user, "test"), actor


@each_case(("role", "only"), [(AUDITOR, FEW), *many([(OPERATOR, FEW), (OPERATOR, None)], [])])
def test_someone_who_has_the_right_reads_all_of_it(told: list[Run], role: str, only: Set[str] | None) -> None:
    client, key, _ = sight(role)
    assert words(told, client, key, only).keys() >= EVERYWHERE | AT_FINANCE | {"a key"}


@each_case(
    ("role", "theirs", "where"),
    [
        (
            "approver_finance",
            AT_FINANCE,
            {
                *(
                    "overview inbox approval changes plan api-approval api-approvals run runs api-run api-runs "
                    "api-run-latest api-run-why"
                ).split()
            },
        ),
        *many(
            [
                ("approver_legal", AT_LEGAL, {"run", "api-run", "api-runs", "api-run-latest"}),
                ("approver_other", set(), set()),
            ],
            [],
        ),
    ],
)
def test_an_approver_reads_only_their_queue(told: list[Run], role: str, theirs: set[str], where: set[str]) -> None:
    client, key, _ = sight(role)
    found = words(told, client, key)
    assert found.keys() == theirs and set().union(*found.values()) == where
    case = client.get(
        f"/inbox/{Approval.objects.get().pk}"
    ).content.decode()  # the list next to it shows a part as well
    assert ("zz-plan" in case.partition('id="arguments"')[2]) is ("approval" in where)


def test_an_operator_from_whom_it_was_taken_sees_what_runs_do(told: list[Run]) -> None:
    boss = somebody("boss", is_superuser=True, is_staff=True)
    rights.let_role_read_payloads(OPERATOR, False, by=boss, justification=WHY)
    client, key, _ = sight(OPERATOR)
    assert words(told, client, key, many(None, FEW)) == {}
    page = client.get(f"/runs/{told[0].pk}?tab=transcript").content.decode()
    assert "Ask an administrator for access to run data" in page and "How many?" in page
    case = client.get(f"/runs/{told[2].pk}").content.decode()
    assert "not shown to you" in case and "no answer recorded" not in case, "what is hidden is not said to be missing"
    row = client.get(f"/api/v1/runs/{told[0].pk}").json()
    assert row["hidden"] and row["state"] == "waiting_human" and row["usage"]["tool_calls"] == 1
    refused = client.get(f"/api/v1/runs/{told[0].pk}/transcript")
    assert refused.status_code == 403 and refused.json()["type"].endswith("payloads-hidden")
    assert "Ask an administrator for access" in refused.json()["detail"]


def test_why_a_run_waits_is_told_without_the_payload(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    boss = somebody("boss", is_superuser=True, is_staff=True)
    runs = _runs(stage, tools, outside, SHOP)
    asleep = Situations(stage, tools).make("asleep")
    Wait.objects.filter(run=asleep).update(
        **as_stored(Wait, detail={"tool": "pay", "title": "Pay", "limit": "tool:pay", "why": "breaker", "error": ERROR})
    )
    readers = sight(OPERATOR)
    rights.let_role_read_payloads(OPERATOR, False, by=boss, justification=WHY)
    blind = sight("approver_other", OPERATOR)

    def told_of(run: Run, reader: tuple[Client, str, Actor]) -> tuple[str, str, str]:
        client, key, _ = reader
        found = client.get(f"/api/v1/runs/{run.pk}/why", headers={"Authorization": f"Bearer {key}"}).json()
        return found["status"]["reason"], found["status"]["sentence"], client.get(f"/runs/{run.pk}").content.decode()

    cause, sentence, page = told_of(asleep, blind)
    assert cause == "breaker" and "waits for tool:pay: its circuit breaker is open" in sentence
    assert "its circuit breaker is open" in page and ERROR not in page + sentence
    _, _, page = told_of(runs[4], blind)
    assert "It may be a duplicate" in page and REJECTED not in page
    rights.let_role_read_payloads(OPERATOR, True, by=boss, justification=WHY)
    assert REJECTED in told_of(runs[4], readers)[2]


def test_everybody_reads_their_own(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    client, key, actor = sight("approver_other", OPERATOR)
    rights.let_role_read_payloads(OPERATOR, False, by=somebody("b", is_superuser=True), justification=WHY)
    runs = _runs(stage, tools, outside, replace(actor, role=OPERATOR))
    found = words(runs, client, key, FEW)
    assert found.keys() >= EVERYWHERE | AT_FINANCE | {"a key"}


def test_an_integrator_reads_the_runs_they_see(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    client, key, actor = sight(INTEGRATOR)
    runs = _runs(stage, tools, outside, SHOP, tags=["acme"])
    assert words(runs, client, key, FEW) == {}
    own_tags.give(User.objects.get(pk=actor.person), "acme", justification=WHY)
    assert words(runs, client, key, FEW).keys() >= EVERYWHERE - {PLANNED} | AT_FINANCE | {"a key"}


def test_what_was_drawn_for_one_is_not_shown_to_the_other(told: list[Run]) -> None:
    """Pages keep what they rendered, and lists are rendered once for many."""
    people = {"reads": sight(OPERATOR), "blind": sight("approver_other")}
    for who in ("blind", "reads", "blind", "reads"):
        client, key, _ = people[who]
        assert bool(words(told[:1], client, key, FEW)) == (who == "reads"), who


def test_it_counts_from_the_next_request_on_and_is_on_record(told: list[Run]) -> None:
    boss = somebody("boss", is_superuser=True, is_staff=True)
    client, key, actor = sight("approver_other")
    told = told[:1]  # other tests cover the other runs' pages
    assert words(told, client, key, FEW) == {}
    assert actor.person is not None
    rights.let_read_payloads(actor.person, True, by=boss, justification="They look into a complaint.")
    assert words(told, client, key, FEW).keys() >= {STATE, ARGUMENT, SAID, "a key"}
    rights.let_read_payloads(actor.person, False, by=boss, justification="It is settled.")
    assert words(told, client, key, FEW) == {}
    acts = ActRecord.objects.filter(action="read_payloads").order_by("id")
    assert [(a.by, a.subject, a.justification, a.after) for a in acts] == [
        ("user:boss", "user:eve-approver_other", "They look into a complaint.", {"reads_payloads": True}),
        ("user:boss", "user:eve-approver_other", "It is settled.", {"reads_payloads": False}),
    ]
    given = AccountRecord.objects.filter(after__permission=READ_PAYLOADS, subject="user:eve-approver_other")
    assert [row.by for row in given] == ["user:boss"]


def test_a_role_is_let_and_not_on_its_page_with_a_reason(told: list[Run]) -> None:
    boss = signed_in(somebody("boss", is_superuser=True, is_staff=True))
    form = {"role": "approver_legal", "may": "yes", "justification": "They audit, too."}
    assert boss.post("/people/payloads", form | {"justification": ""}).status_code == 422
    assert boss.post("/people/payloads", form | {"role": "boss"}).status_code == 404
    client, key, actor = sight("approver_legal")
    told = told[:1]
    assert words(told, client, key, FEW).keys() == AT_LEGAL
    assert boss.post("/people/payloads", form).status_code == 302
    assert words(told, client, key, FEW).keys() >= {STATE, ARGUMENT, SAID, "a key"}
    assert "all runs, as Legal approver" in " ".join(boss.get(f"/people/{actor.person}").content.decode().split())
    assert boss.post("/people/payloads", form | {"may": "no"}).status_code == 302
    assert words(told, client, key, FEW).keys() == AT_LEGAL


def test_nobody_gives_it_without_a_reason_and_nobody_to_nobody(stage: Stage) -> None:
    boss = somebody("boss", is_superuser=True)
    for refused in (
        lambda: rights.let_role_read_payloads("boss", True, by=boss, justification=WHY),
        lambda: rights.let_read_payloads(404, True, by=boss, justification=WHY),
    ):
        with pytest.raises(NotFound):
            refused()
    with pytest.raises(JustificationRequired):
        rights.let_role_read_payloads(OPERATOR, False, by=boss, justification=" ")


def test_who_sees_what_is_one_judgement(stage: Stage) -> None:
    """A superuser needs the right as well, and the right needs a role that sees the run."""
    nobody = User.objects.get(pk=somebody("root", is_superuser=True).person)
    assert not viewer_of(nobody).sees_all and not viewer_of(nobody).reads_all
    approver = User.objects.get(pk=somebody("ann", "approver_legal", is_superuser=True).person)
    seen = viewer_of(approver)
    assert seen == Viewer(True, approver.pk, frozenset(), False, frozenset({"approver_legal"}))
    assert seen.sees(404, ()) and not seen.reads(404, ()) and seen.reads(approver.pk, ()) and not seen.reads(None, ())
    assert viewer_of(User.objects.get(pk=somebody("olga", OPERATOR).person)) == EVERYTHING


def test_operators_and_auditors_have_it_from_the_start_and_nobody_else(stage: Stage) -> None:
    right = Permission.objects.get(codename=READ_PAYLOADS)
    assert set(right.group_set.values_list("name", flat=True)) & set(ROLES) == {OPERATOR, AUDITOR}
    from durableagents.apps import create_roles

    Group.objects.get(name=AUDITOR).permissions.remove(right)
    create_roles(using="default")
    assert not Group.objects.get(name=AUDITOR).permissions.filter(pk=right.pk).exists(), "what was taken stays taken"
