"""The number of statements of every page and list, found by their addresses, so that a new one is counted too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from approvals.models import Approval
from approvals.queues.along import FACTS
from durableagents.identity.auth import issue_key
from ledger.web.roles import AUDITOR, OPERATOR
from runs.models import Run, Wait
from tests.apps import offered
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
from tests.integration.scale.fill import fill
from tests.integration.scale.paths import paths
from tests.integration.scale.test_reads import MAX_STATEMENTS
from tests.tampering import without_triggers
from tests.tiers import sample

pytestmark = pytest.mark.django_db
# They check a record against every table on request: no list, and never reloaded automatically.
CHECKS = {"verification", "verify_all", "api-verification", "api-run-verification"}
# They read a file, or count what is due; none is reloaded automatically.
ARCHIVED = {"archived_run", "api-archived-run", "api-archived-run-events", "retention", "api-run-evidence"}
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
        case "name":
            return ["buyer"]
        case "user_id":
            return [User.objects.create(username="somebody").pk]
        case "queue":
            for prepare in offered("addresses", "prepare_queue"):
                prepare()
            return ["legal"]
        case _:
            for table in offered("addresses", "SAMPLES"):
                if name in table:
                    found: list[Any] = table[name]()
                    return found
            raise AssertionError(f"an address has a part {name!r}: say here, or in its app, what stands for it")


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


RUNS = 6_000  # fills every page and list


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
        for give_all in offered("addresses", "give_all"):
            give_all(cursor, person.user.pk)
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
