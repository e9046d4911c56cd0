"""The number of statements of every page and list, found by their addresses, so that a new one is counted too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from approvals.models import Approval
from approvals.queues.along import FACTS
from durableagents.contrib.bulk import services as bulk
from durableagents.contrib.bulk.services import BatchBody
from durableagents.contrib.calendars.models import Calendar
from durableagents.contrib.change_control.models import RuleChange
from durableagents.contrib.halts import services as halts
from durableagents.contrib.halts.services import HaltBody
from durableagents.contrib.notifications import channels
from durableagents.contrib.notifications.channels import ChannelBody
from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.models import Policy
from durableagents.contrib.policies.services import NewPolicyBody
from durableagents.contrib.releases.models import Ramp
from durableagents.contrib.reports import catalogue
from durableagents.contrib.reports.models import StoredReport
from durableagents.contrib.reports.tables import as_bytes
from durableagents.contrib.schedules.models import Firing, Schedule
from durableagents.contrib.standing_approvals.models import StandingGrant, StandingUse
from durableagents.contrib.webhooks import services as webhooks
from durableagents.contrib.webhooks.models import Webhook
from durableagents.contrib.webhooks.services import WebhookBody
from durableagents.identity.auth import issue_key
from ledger.actors import Actor
from ledger.web.roles import AUDITOR, OPERATOR
from runs.models import Run, Wait
from tests.contrib.limits.budgets import pool
from tests.integration.approvals.timing import calendar, timing
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.integration.scale.fill import fill
from tests.integration.scale.paths import paths
from tests.integration.scale.test_reads import MAX_STATEMENTS
from tests.tampering import without_triggers
from tests.tiers import sample

pytestmark = pytest.mark.django_db
RUNS = 6_000  # fills every page and list
# They check a record against every table on request: no list, and never reloaded automatically.
CHECKS = {"verification", "verify_all", "api-verification", "api-run-verification", "api-run-evidence"}
# They read a file, or count what is due; none is reloaded automatically.
ARCHIVED = {"archived_run", "api-archived-run", "api-archived-run-events", "retention"}
# For a ready run: whether any worker has its version.
READY = 1
# The filled rows carry no codes: the audit and a decided case check whether they may lack them; by= looks up the name.
UNCODED = 1
# A process reads a run's journal at its first look only.
FIRST = 1
# For a run with pools: which pools, and their state.
POOLED = 2
# For a run at a gate: the question, and its queue's settings for deciders.
GATED = 3
# Other people's, or everybody's.
OF_ALL = (
    "/shared-budgets/",
    "/api/v1/shared-budgets/",
    "/bulk/",
    "/api/v1/bulk/",
    "/queues/grants/",
    "/api/v1/grants/",
)
# Who may see the run, and which others it may name, for people who don't see all.
OWN = 2
# Probe results of the agents' tools.
PROBED = 1
# The queues' settings, cached for some seconds, which the next page reads.
OF_QUEUES = FACTS[:80]
# Not ours, or not reading: probes, the API's description, Django's admin. Parts of one run are read by
# tests/integration/api/test_waiting.py.
LINKS = {"setup_claim", "invited", "reset", "reset_set"}  # without a link they show only a form
ELSEWHERE = (
    {"healthz", "readyz", "metrics", "api-schema", "api-unknown", "login", "login_demo"}
    | LINKS
    | {
        "api-run-message",
        "api-run-view",
        "run-view",
        "view_value",
        "event_payload",
        "api-run-event-content",
        "checkpoint_state",
        # Of one case: see tests/contrib/documents/test_documents.py, which also counts its cost.
        "document",
        "document_page",
        "api-document",
        "api-document-pages",
        "api-document-page",
        # They read a whole period, in a fixed number of statements: see tests/contrib/reports/test_faces.py.
        "insights",
        "report",
        "run_report",
        "api-report",
        # It needs a query: see tests/contrib/encryption/test_erase_faces.py.
        "api-erasures",
        # Signed-in people are redirected from the sign-in pages.
        "sign_in_code",
        "sign_in_factor",
        "sso",
        "sso_callback",
    }
)


def named(found: URLResolver) -> Iterator[tuple[str, URLPattern]]:
    for each in found.url_patterns:
        if isinstance(each, URLResolver):
            if each.app_name != "admin":
                yield from named(each)
        elif each.name:
            yield each.name, each


def is_read(route: URLPattern) -> bool:
    view: Any = getattr(route.callback, "view_class", None) or getattr(route.callback, "cls", None)
    return view is not None and hasattr(view, "get") and "get" in view.http_method_names


def scheduled() -> Schedule:
    now = timezone.now()
    given = {
        "agent": "buyer",
        "input": {},
        "cron": "@daily",
        "owner": 1,
        "set_by": "user:olga",
        "created_at": now,
        "updated_at": now,
        "next_at": now,
    }
    several = [Schedule.objects.create(name=f"n{i}", **given) for i in range(20)]
    for one in several:
        for day in range(12):
            planned = now - timedelta(days=day)
            Firing.objects.create(schedule=one, planned_at=planned, at=planned, outcome="missed")
    return several[0]


def runs() -> list[Any]:
    waiting = [
        Wait.objects.filter(kind=kind, resolved_at__isnull=True).earliest("opened_at", "id").run_id
        for kind in ("approval", "reconcile", "input")
    ]
    ended = [Run.objects.filter(state=state).earliest("id").id for state in ("completed", "failed", "pending")]
    return [*waiting, *ended]


def cases() -> list[Any]:
    """Return each kind's first and last case in a fixed order: a case beyond the first page costs a second read."""
    kinds = [Q(state="open"), Q(state="approved"), Q(revision=2)]
    found = [Approval.objects.filter(kind).order_by("deadline", "id") for kind in kinds]
    return [one.id for some in found for one in (some[0], some.reverse()[0])]


def samples(name: str) -> list[Any]:
    """Return samples for a part of an address: one of each kind that its page shows differently."""
    match name:
        case "run_id":
            return runs()
        case "approval_id":
            return cases()
        case "graph_id" | "reference":
            return ["buyer@1.0.0"]
        case "batch_id":
            run = Run.objects.filter(state="pending")[0].id
            body = BatchBody(action="pause", runs=[run], justification="Hold on.", start=False)
            by = Actor("user", "olga", role="operator", person=1)
            return [bulk.create(body, [run], {"runs": 1}, by=by, held=frozenset({"operator"})).pk]
        case "schedule_id":
            return [scheduled().id]
        case "name":
            return ["buyer"]
        case "user_id":
            return [User.objects.create(username="somebody").pk]
        case "queue":
            timed()
            return ["legal"]
        case "ramp_id":
            return [ramp().pk]
        case "budget_id":
            return [pool(limit=10**6).pk]
        case "halt":
            body = HaltBody(kind="starts", scope="agent", key="nobody", justification="None of these.")
            return [halts.begin(body, by=Actor("user", "olga", role="operator", person=1)).halt]
        case "calendar":
            timed()
            return ["DE"]
        case "policy":
            policy()
            return ["dear"]
        case "change_id":
            return [rule_change().pk]
        case "channel_id":
            room = ChannelBody(name="room", form="mailbox", address="a@b.example", kinds=["failed"], justification="ok")
            return [channels.add(room, by=Actor("os", "root", auth="shell")).pk]
        case "webhook_id":
            found = Webhook.objects.first()
            webhook_body = WebhookBody(name="one", url="https://1.1.1.1/", events=["run.failed"], justification="ok")
            return [(found or webhooks.create(webhook_body, by=Actor("os", "root", auth="shell"))[0]).pk]
        case "grant_id":
            return [standing_grant().pk]
        case "report":
            return [kind.name for kind in catalogue.REPORTS.values() if not kind.of_run]
        case "stored_id":
            return [stored_report().pk]
        case "archived_id":
            return [UUID(int=1)]
        case _:
            raise AssertionError(f"an address has a part {name!r}: say here what stands for it")


def standing_grant() -> StandingGrant:
    if (known := StandingGrant.objects.first()) is not None:
        return known
    given, used = Approval.objects.filter(state="approved").order_by("opened_at")[:2]
    now = timezone.now()
    row = StandingGrant(
        approval=given,
        run_id=given.run_id,
        queue=given.queue,
        tool="buy",
        agent="buyer",
        is_of_run=False,
        same="x",
        fields=["item"],
        count=3,
        until=now + timedelta(days=3),
        person=1,
        by="user:lena",
        role="approver_legal",
        reason="the same",
        at=now,
    )
    row.seal()
    row.save()
    use = StandingUse(grant=row, n=1, approval=used, run_id=used.run_id, at=now)
    use.seal()
    use.save()
    return row


def stored_report() -> StoredReport:
    content = catalogue.make(catalogue.find("overrides")).to_json()
    text = as_bytes(content).decode()
    now = timezone.now()
    return StoredReport.objects.create(
        name="overrides",
        schedule="monthly",
        starts_at=now - timedelta(days=30),
        ends_at=now,
        made_at=now,
        content=text,
        sha256=sha256(text.encode()).hexdigest(),
    )


def timed() -> None:
    if not Calendar.objects.exists():
        root = Actor("os", "root", auth="shell")
        calendar(root)
        timing(root, "legal", calendar="DE", on_timeout="remind", every_hours=1)


def policy() -> None:
    if not Policy.objects.exists():
        fields = {"name": "dear", "effect": "deny", "rule": "too dear", "agent": "buyer", "justification": "agreed"}
        policies.create(NewPolicyBody(**fields), by=Actor("os", "root", auth="shell"))


def rule_change() -> RuleChange:
    fields = {"action": "policy", "subject": "policy dear", "queue": "", "before": {}, "after": {"rule": "no"}}
    change = RuleChange(
        id=uuid4(),
        family="policies",
        act="durableagents.contrib.policies.services.create",
        given={},
        told=[fields],
        why="so",
        by="user:olga",
        person=1,
        made_at=timezone.now(),
    )
    change.seal()
    change.save(force_insert=True)
    return change


def ramp() -> Ramp:
    now = timezone.now()
    given = {
        "agent": "buyer",
        "share": 1000,
        "bounds": {"failed": 5},
        "least": 20,
        "made_at": now,
        "set_by": "user:olga",
    }
    for _ in range(5):
        Ramp.objects.create(from_version="0.9.0", to_version="1.0.0", state="done", ended_at=now, **given)
    return Ramp.objects.create(from_version="0.9.0", to_version="1.0.0", **given)


def addresses() -> Iterator[str]:
    for name, route in named(get_resolver()):
        if is_read(route) and name not in CHECKS | ARCHIVED | ELSEWHERE:
            parts = list(route.pattern.converters)
            yield from (reverse(name, args=[each]) for each in samples(parts[0])) if parts else (reverse(name),)


def counted(client: Client, path: str, **more: Any) -> tuple[int, list[str]]:
    with CaptureQueriesContext(connection) as found:
        status = client.get(path, follow=True, **more).status_code
    items = [query["sql"][:160] for query in found.captured_queries]
    if any(entry.startswith(OF_QUEUES) for entry in items):  # now cached for some seconds
        return counted(client, path, **more)
    return status, items


@pytest.fixture
def filled(db: None, agent: Any) -> list[str]:
    fill(RUNS)
    audit = ("by=rare", "by=user:rare", "agent=buyer", "action=retry&by=olga", "queue=legal&from=2026-01-01")
    decided = [f"/inbox/{each}?show=decided" for each in cases()]
    audits = (f"{start}?{query}" for start in ("/audit", "/api/v1/audit") for query in audit)
    return [*addresses(), *paths(), *decided, *audits]


def test_every_page_and_list_costs_at_most_eight_statements(filled: list[str], reader: Callable[..., Reader]) -> None:
    too_many: dict[str, list[str]] = {}
    for nth, role in enumerate((OPERATOR, "approver_finance", AUDITOR)):
        person = reader(role)
        person.client.get("/agents")  # from here on this process knows the session
        for path in sample(filled[nth:] + filled[:nth], 7):  # for each others
            status, value = counted(person.client, path)
            is_others = status == 404 and ("/bulk/" in path or "/grants/" in path)
            assert status in (200, 403) or is_others, f"{role} {path}"
            if len(value) > MAX_STATEMENTS + (READY + FIRST + POOLED if path.startswith("/runs/018f") else 0) + (
                UNCODED if path.startswith(("/audit?by=", "/inbox/")) else GATED if path.endswith("/why") else 0
            ):
                too_many[f"{role} {path}"] = value
    assert too_many == {}

    # The same with a key.
    headers = {"Authorization": f"Bearer {issue_key(reader('auditor').user, 'program')}"}
    Client().get("/api/v1/agents", headers=headers)  # notes that the key is used
    found = {path: counted(Client(), path, headers=headers) for path in sample(filled, 3) if path.startswith("/api/")}
    assert {status for status, _ in found.values()} == {200}
    more = {path: GATED if path.endswith("/why") else 0 for path in found}
    assert {path: value for path, (_, value) in found.items() if len(value) > MAX_STATEMENTS + more[path]} == {}


def test_an_integrators_own_pages_cost_two_more_at_most(filled: list[str], reader: Callable[..., Reader]) -> None:
    """They check whether the run is theirs, and which related runs they may see."""
    person = reader("integrator")
    assert person.user is not None
    with without_triggers() as cursor:
        cursor.execute("UPDATE runs_run SET creator = %s", [person.user.pk])
        cursor.execute("UPDATE runs_schedule SET owner = %s", [person.user.pk])
    person.client.get("/agents")
    too_many: dict[str, list[str]] = {}
    for path in sample(filled, 7):
        status, question = counted(person.client, path)
        is_of_all = path.startswith(OF_ALL) or path == "/api/v1/runs/bulk"
        assert status in (200, 403) or (is_of_all and status == 404), path
        more = READY + FIRST + POOLED if path.startswith("/runs/018f") else GATED if path.endswith("/why") else 0
        if len(question) > MAX_STATEMENTS + OWN + more:
            too_many[path] = question
    assert too_many == {}


def test_who_asks_is_one_statement(reader: Callable[..., Reader]) -> None:
    person = reader("operator")
    person.client.get("/agents")
    assert len(counted(person.client, "/api/v1/agents")[1]) == 1 + PROBED
    headers = {"Authorization": f"Bearer {issue_key(person.user, 'program')}"}
    Client().get("/api/v1/agents", headers=headers)
    assert len(counted(Client(), "/api/v1/agents", headers=headers)[1]) == 1 + PROBED


def test_the_walk_finds_the_pages_that_everybody_knows() -> None:
    found = {name for name, route in named(get_resolver()) if is_read(route)}
    assert found >= {
        *"overview inbox approval runs run reconcile audit agents agent fleet recoveries start password".split()
    }
    assert found >= {
        *"api-runs api-run api-approvals api-audit api-incidents api-fleet api-run-events api-run-ledger".split()
    }
    assert found >= CHECKS
