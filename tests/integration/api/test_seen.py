"""Integrators see everything of their own runs and tags, and nothing of any other run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client
from django.urls import get_resolver, reverse

from durableagents.identity import own_tags
from durableagents.models import OwnTag
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.models import LedgerEntry
from runs.models import Run, RunTag, Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem, person
from tests.integration.scale.fill import fill
from tests.integration.scale.test_statements import is_read, named
from tests.tampering import tamper

pytestmark = pytest.mark.django_db
SHOP = Actor("key", "shop", role="integrator", auth="api_key", address="192.0.2.1")
WHY = "They answer for this tenant."


def theirs(**more: Any) -> Run:
    return lifecycle.start("order@1.0.0", {"item": "theirs", "amount": 3}, by=SHOP, **more)


def me() -> Any:
    return get_user_model().objects.get(username="integrator")


def listed(api: Api, **query: Any) -> list[str]:
    found: list[str] = []
    answer = api.get("runs", **query)
    while True:
        assert answer.status_code == 200, answer.content
        found += [row["id"] for row in answer.json()["results"]]
        if not answer.json()["next"]:
            return found
        answer = api.get(answer.json()["next"])


OF_NO_RUN = (
    *"api-schema start healthz readyz metrics password login sign_in_code sign_in_factor second_factor".split(),
)


def _told(client: Client, headers: dict[str, str], own: str) -> dict[str, str]:
    """Return every page and list without the parts that change from moment to moment."""
    fields = {}
    for name, route in named(get_resolver()):
        parts = list(route.pattern.converters)
        if not is_read(route) or name in OF_NO_RUN:
            continue
        args: list[Any] = [own] if parts == ["run_id"] else []
        args = ["order@1.0.0"] if parts and parts[0] in ("graph_id", "reference") else args
        args = ["order"] if name == "api-versions" else args
        if len(args) < len(parts):
            continue
        answer = client.get(reverse(name, args=args), headers=headers if name.startswith("api-") else {})
        text = answer.content.decode()
        for moves in (
            r'name="(csrfmiddlewaretoken|token)" value="[^"]+"',
            r"csrf[^,]*",
            r'data-as-of="\d+"',
            r"\d+(\.\d+)? ?m?s\b",
            r'"(token|options)": "(\\.|[^"\\])*"',  # a passkey's challenge differs each time
            r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)",
            r"\d\d:\d\d(:\d\d(\.\d+)?)?",
            r'data-(at|now)="[^"]+"',
        ):
            text = re.sub(moves, "…", text)
        fields[name] = f"{answer.status_code} {text}"
    return fields


@pytest.mark.needs("search")
def test_nothing_that_others_do_changes_what_an_integrator_is_told(integrator: Api, operator: Api) -> None:
    """Pages, lists, counts and badges, before and after two thousand runs of others in every state."""
    own = integrator.post("runs", START).json()["id"]
    browser = Client()
    browser.force_login(me())
    before = _told(browser, integrator.headers, own)
    assert {"runs", "overview", "inbox", "reconcile", "agents", "api-runs", "api-approvals", "api-run"} <= before.keys()
    assert not {name for name, text in before.items() if text[:3] not in ("200", "403")}
    with transaction.atomic():
        fill(2000)
    for agent in ("buyer", "rare"):  # including this test's agent
        _as_orders(agent)
    operator.post("schedules", {"name": "n", "agent": "order", "cron": "@daily", "input": START["input"]})
    pool = {"name": "all", "resource": "usd", "limit": "5.00", "scope": "all", "period": "month"}
    assert operator.post("shared-budgets", pool | {"justification": WHY}).status_code == 201
    theirs(tags=["late"])
    assert Run.objects.count() > 2000 and len(listed(operator, state="failed")) > 50
    after = _told(browser, integrator.headers, own)
    assert {name: (before[name], after[name]) for name in before if after[name] != before[name]} == {}


def _as_orders(agent: str) -> None:
    tamper(
        "UPDATE runs_run SET agent = 'order', graph_id = 'order@1.0.0' WHERE agent = %s AND state <> 'pending'", agent
    )


@pytest.mark.needs("search")
def test_no_search_finds_a_run_of_others(integrator: Api, operator: Api) -> None:
    hidden = theirs(tags={"tenant": "acme"})
    LedgerEntry.objects.create(
        run_id=hidden.pk,
        seq=1,
        slot="0.1/1",
        attempt=0,
        fact="committed",
        tool="buy",
        external_id="PO-9",
        replay_class="idempotent_with_key",
        actor="system:engine",
        at=hidden.created_at,
    )
    whole = str(hidden.pk)
    for words in (whole, whole[:9], whole[-8:], f"{whole[:4]}…{whole[-4:]}", "theirs", "acme", "shop", "PO-9"):
        assert whole in listed(operator, q=words), words
        assert listed(integrator, q=words) == [], words
    assert listed(integrator, state="pending") == []
    assert listed(integrator, agent="order@1.0.0") == [] and listed(operator, agent="order@1.0.0") == [whole]


def test_lists_go_on_page_by_page_and_name_nobody_elses_run(integrator: Api) -> None:
    own, hidden = [], []
    for _ in range(7):
        own.append(integrator.post("runs", START).json()["id"])
        hidden += [str(theirs().pk), str(theirs(tags=["mine", "late"]).pk)]
    own_tags.give(me(), "late", justification=WHY)
    own_tags.give(me(), "mine", justification=WHY)
    mine = sorted([*own, *hidden[1::2]], reverse=True)
    assert listed(integrator, limit=3) == mine, "each once, by however many tags it is seen"
    assert listed(integrator, limit=3, state="pending") == listed(integrator, limit=2, agent="order") == mine
    assert listed(integrator, state="failed") == []


@each_case(
    ("tags", "own"), [(["late", "acme"], "acme"), ({"tenant": "acme"}, "tenant:acme"), ({"tenant": "acme"}, "tenant")]
)
def test_a_tag_of_ones_own_shows_its_runs_until_it_is_taken(integrator: Api, tags: Any, own: str) -> None:
    run, browser = theirs(tags=tags), Client()
    browser.force_login(me())
    assert is_problem(integrator.get(f"runs/{run.pk}"), 404) and browser.get(f"/runs/{run.pk}").status_code == 404
    given = own_tags.give(me(), own, justification=WHY)
    assert integrator.get(f"runs/{run.pk}/events").status_code == 200 and listed(integrator) == [str(run.pk)]
    assert browser.get(f"/runs/{run.pk}").status_code == 200
    assert is_problem(integrator.post(f"runs/{run.pk}/cancel", {"justification": WHY}), 403, "forbidden")
    own_tags.take(given, justification="They have left that team.")
    assert is_problem(integrator.get(f"runs/{run.pk}"), 404) and listed(integrator) == []
    assert browser.get(f"/runs/{run.pk}").status_code == 404


def test_what_a_run_starts_and_goes_on_as_is_seen_with_it(integrator: Api) -> None:
    above, child, successor = theirs(tags=["acme"]), theirs(), theirs()
    Run.objects.filter(pk=child.pk).update(parent=above.pk, parent_slot="0.1/1", depth=1)
    Run.objects.filter(pk=successor.pk).update(came_from=child.pk, first=child.pk, turn=1)
    assert set(RunTag.objects.values_list("run_id", "tag")) == {(run.pk, "acme") for run in (above, child, successor)}
    own_tags.give(me(), "acme", justification=WHY)
    assert set(listed(integrator)) == {str(run.pk) for run in (above, child, successor)}
    assert [row["id"] for row in integrator.get(f"runs/{above.pk}/children").json()["results"]] == [str(child.pk)]


def test_a_run_that_is_seen_names_no_other_that_isn_t(integrator: Api, operator: Api) -> None:
    above, own = theirs(), theirs(tags=["acme"])
    Run.objects.filter(pk=own.pk).update(parent=above.pk, forked_from=above.pk, fork_how="fork")
    own_tags.give(me(), "acme", justification=WHY)
    value, browser = integrator.get(f"runs/{own.pk}"), Client()
    assert value.status_code == 200 and str(above.pk) not in value.content.decode()
    assert str(above.pk) in operator.get(f"runs/{own.pk}").content.decode()
    browser.force_login(me())
    for page in (f"/runs/{own.pk}", "/runs", "/", "/agents/order@1.0.0"):
        text = browser.get(page).content.decode()
        assert str(own.pk) in text and str(above.pk) not in text and str(above.pk)[-8:] not in text, page


@each_case(
    ("tag", "why"),
    [
        ("", WHY),
        (" acme", WHY),
        ("ac\u200bme", WHY),
        ("x" * 201, WHY),
        ("acme\n", WHY),
        ("acme", ""),
        ("acme", "…"),
        ("acme", " \n"),
    ],
)
def test_an_impossible_tag_and_one_without_a_reason_are_refused(integrator: Api, tag: str, why: str) -> None:
    boss = Client()
    boss.force_login(person("boss", is_staff=True, is_superuser=True))
    answer = boss.post("/admin/durableagents/owntag/add/", {"user": me().pk, "tag": tag, "given_for": why})
    is_trimmed = tag.strip() == "acme" and why == WHY  # a form trims blanks
    assert answer.status_code == (302 if is_trimmed else 200)
    with pytest.raises(DurableAgentsError):
        own_tags.give(me(), tag, justification=why)
    assert OwnTag.objects.count() == is_trimmed


def test_a_wider_role_sees_everything_and_no_role_nothing(caller: Callable[[Any], Api]) -> None:
    run, both = theirs(), person("both", "integrator", "auditor")
    from durableagents.identity.auth import issue_key

    api = Api(issue_key(both, "test"))
    assert api.get(f"runs/{run.pk}").status_code == 200
    both.groups.remove(both.groups.get(name="auditor"))
    assert is_problem(api.get(f"runs/{run.pk}"), 404)
    both.groups.clear()
    assert is_problem(api.get(f"runs/{run.pk}"), 403)


@each_case("rule", ["refuse", "join", "replace", "debounce"])
def test_anothers_key_names_no_run_and_touches_none(integrator: Api, operator: Api, rule: str) -> None:
    hidden = operator.post("runs", START | {"business_key": "acme-7"}).json()["id"]
    fields = START | {"business_key": "acme-7", "on_conflict": rule}
    fields |= {"debounce_seconds": 60} if rule == "debounce" else {}
    fields |= {"signal": {"name": "go", "payload": 1}} if rule == "join" else {}
    answer = integrator.post("runs", fields)
    assert is_problem(answer, 409, "business-key-taken") and hidden not in answer.content.decode()
    assert Run.objects.count() == 1 and Run.objects.get().state == "pending"
    assert [row["kind"] for row in operator.get(f"runs/{hidden}/events").json()["results"]][-1] != "SignalReceived"


@pytest.mark.needs("limits")
def test_limits_tell_what_counts_and_nothing_of_who_waits(integrator: Api, operator: Api) -> None:
    rule = {"per_minute": 60, "at_once": 4, "justification": "Their contract says so."}
    assert operator.post("limits", rule | {"key": "tool:charge"}).status_code == 200
    assert operator.post("limits", {"key": "tag:acme", "at_once": 4, "justification": WHY}).status_code == 200
    hidden = theirs()
    Wait.objects.create(
        id=uuid4(),
        run_id=hidden.pk,
        slot="0.1/1",
        kind="timer",
        opened_at=hidden.created_at,
        deadline=hidden.created_at,
        detail={"limit": "tool:charge"},
    )
    (found,) = integrator.get("limits").json()["results"]
    assert (found["key"], found["rule"]["at_once"], found["breaker"]) == ("tool:charge", 4, "closed")
    assert (found["waiting"], found["under_way"], found["served"], found["runs"]) == (None, None, None, [])
    assert [row["waiting"] for row in operator.get("limits").json()["results"]] == [0, 1]
    own_tags.give(me(), "acme", justification=WHY)
    assert [row["key"] for row in integrator.get("limits").json()["results"]] == ["tag:acme", "tool:charge"]
    browser = Client()
    browser.force_login(me())
    assert str(hidden.pk)[-8:] not in browser.get("/limits").content.decode()
