"""Permissions: every console page and action, every role, own and foreign runs. An unlisted address fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from ledger.actors import Actor
from ledger.codec import pack
from ledger.web.roles import ROLES
from runs.engine.agents import registry
from runs.journal.reader import checksum
from runs.models import Checkpoint
from runs.services import lifecycle
from tests.apps import offered
from tests.cases import each_case
from tests.integration.console.conftest import SHOP, Reader, State
from tests.roles import EVERY, STOP
from tests.tiers import sample

pytestmark = pytest.mark.django_db

ALL = EVERY


def _by_name(*table: tuple[Set[str], str]) -> dict[str, Set[str]]:
    return {name: roles for roles, names in table for name in names.split()}


READ = _by_name(
    (
        ALL,
        """
        overview inbox approval runs run verification reconcile agents agent run-view view_value
        event_payload checkpoint_state queues queue similar_outcomes api_reference plan
        """,
    ),
    (ALL - {"integrator"}, "audit verify_all"),
    ({"integrator", "operator"}, "start"),
    ({"operator", "auditor"}, "fleet recoveries"),
    ({"operator"}, "context fleet_acts"),
    ({"approver_finance", "approver_legal"}, "changes"),
    *(row for rows in offered("addresses", "READ") for row in rows),
)
ACT = _by_name(
    ({"integrator", "operator"}, "start messages"),
    (STOP, "pauses resumptions cancellations"),
    (STOP - {"integrator"}, "budgets"),
    (ALL, "answers"),
    (
        {"operator"},
        """
        retries reconciliations reconciliation_withdrawals reconciliation_askings models requeues
        worker_drains host_deaths context_looks context_resumptions context_retries
        """,
    ),
    ({"approver_finance", "approver_legal"}, "decision changes"),
    (
        set(),
        """
        new_queue queue_changes queue_closings queue_openings queue_removals queue_limits queue_lifts
        queue_proofs queue_reasons
        """,
    ),
    *(row for rows in offered("addresses", "ACT") for row in rows),
)
# Only payloads, and the roles that read those of every run.
ALL_PAYLOAD = {"run-view", "view_value", "event_payload", "checkpoint_state", "evidence"}
READERS = {"operator", "auditor"}
PAYLOAD_ACTS = {"evidence_exports"}
STOPS = {"pauses", "resumptions", "cancellations", "budgets"}
OPEN = {
    "login",
    "demo_login",
    "logout",
    "service_worker",
    *(name for names in offered("addresses", "OPEN") for name in names),
}


def _routes(patterns: list[URLPattern | URLResolver]) -> Iterator[tuple[str, set[str]]]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from _routes(each.url_patterns)
        else:
            yield str(each.name), {*each.pattern.converters}


# Values of each address part except a run's and a batch's.
PARTS: dict[str, Any] = {
    "graph_id": "buyer@1.0.0",
    "queue": "legal",
    "calendar": "DE",
    "policy": "buying",
    "name": "summary",
}
PARTS |= dict.fromkeys(("n", "page", "seq"), 1)
PARTS |= dict.fromkeys(("wait_id", "schedule_id", "approval_id", "change_id", "halt", "archived_id"), UUID(int=1))
PARTS |= dict.fromkeys(("pk", "device_id", "key_id", "budget_id", "ramp_id", "deputy_id", "grant_id"), 404)
PARTS |= dict.fromkeys(("delivery_id", "channel_id", "absence_id", "webhook_id"), 404)
PARTS |= {"report": "outcomes", "stored_id": 404, "finding_id": 404, "policy_id": 404, "hold_id": 404}
ROUTES = dict(_routes(get_resolver("durableagents.urls_console").url_patterns))
# Addresses of one run. To an integrator who neither started it nor has its tag, the run doesn't exist.
OF_A_RUN = {name for name, parts in ROUTES.items() if "run_id" in parts}
OF_SOMEBODY = OF_A_RUN | {"batch", "batch_starts", "batch_stops"}


@pytest.fixture
def paths_of(db: None) -> Callable[..., Callable[[str], str]]:
    """Return the addresses of one run of this owner and of one of everything else."""
    registry.find("buyer").view("summary", answers=State)(lambda state: state)

    def of(owner: Reader | None = None) -> Callable[[str], str]:
        by = SHOP if owner is None or owner.user is None else replace(SHOP, person=owner.user.pk)
        parts = PARTS | _made(by)
        return lambda name: reverse(name, kwargs={part: parts[part] for part in ROUTES[name]})

    return of


def _made(by: Actor) -> dict[str, Any]:
    run, state = lifecycle.start("buyer", {"item": "chairs"}, by=by), pack({"request": {"item": "chairs"}}, None)
    kept = {"generation": 0, "node": "", "visit": 0, "fingerprint": "", "checksum": checksum("", 0, state)}
    Checkpoint.objects.create(run_id=run.pk, seq=1, state=state, at=timezone.now(), **kept)
    found: dict[str, Any] = {"run_id": run.id}
    for make in offered("addresses", "make_parts"):
        found |= make(run, by)
    return found


def test_every_address_has_its_line_here() -> None:
    assert ROUTES.keys() == {*READ, *ACT, *OPEN}.union(*offered("addresses", "ELSEWHERE"))


def others(names: Set[str], role: str) -> list[str]:
    """Return the names; in `make test` half of them, the other half for the next role."""
    nth = ROLES.index(role)
    return sample([*sorted(names)[nth:], *sorted(names)[:nth]], 2)


@each_case("is_own", [True, False])
@each_case("role", ROLES)
def test_a_page_opens_for_its_roles_and_no_other(
    reader: Callable[..., Reader], paths_of: Callable[..., Callable[[str], str]], role: str, is_own: bool
) -> None:
    somebody = reader(role)
    names = READ.keys() & OF_SOMEBODY if is_own else READ.keys()
    path_of = paths_of(somebody if is_own else None)
    names = others(names, role)
    opened = {name: somebody.client.get(path_of(name), follow=True).status_code for name in names}
    hidden = {"approval", "rule_change", "calendar", "changes", "standing_grant", "document", "document_page", "plan"}
    hidden |= {"stored_report", "archived_run", "webhook"}
    hidden |= set() if is_own or role in READERS else {"batch"}
    hidden |= OF_A_RUN if role == "integrator" and not is_own else set()
    may = {name: 404 if name in hidden else 200 for name in names if role in READ[name]}
    if not is_own and role not in READERS:  # see test_payloads.py
        may = {name: 403 if name in ALL_PAYLOAD and status == 200 else status for name, status in may.items()}
    assert opened == {name: may.get(name, 403) for name in names}


@each_case("is_own", [True, False])
@each_case("role", ROLES)
def test_an_act_is_refused_to_every_other_role(
    reader: Callable[..., Reader], paths_of: Callable[..., Callable[[str], str]], role: str, is_own: bool
) -> None:
    somebody = reader(role)
    path_of = paths_of(somebody if is_own else None)
    for name in others(ACT.keys() & OF_SOMEBODY if is_own else ACT.keys(), role):
        answer = somebody.post(path_of(name), justification="why", agent="buyer")
        if role == "integrator" and role in ACT[name] and name in OF_A_RUN and not is_own:
            assert answer.status_code == 404, name
            continue
        # Runs that never waited at a queue.
        may_stop = role == "operator" or (role == "integrator" and is_own and name != "budgets")
        may_not = (name in STOPS and not may_stop) or (name in PAYLOAD_ACTS and not is_own and role not in READERS)
        assert (answer.status_code == 403) == (role not in ACT[name] or may_not), name


@pytest.mark.needs("evidence", "reports", "forks")
def test_links_to_pages_of_apps_are_shown_to_those_who_may_open_them(
    reader: Callable[..., Reader], paths_of: Callable[..., Callable[[str], str]]
) -> None:
    for role in ROLES:
        somebody = reader(role)
        path_of = paths_of(somebody)
        for page, links in (("run", ("evidence", "run_report", "fork")), ("reports", ("audit",))):
            html = somebody.get(path_of(page)).content.decode()
            body = html.partition("<main")[2]
            for name in links:
                is_open = somebody.get(path_of(name)).status_code == 200
                assert (f'href="{path_of(name)}"' in body) == is_open, (role, page, name)


def test_strangers_must_sign_in(reader: Callable[..., Reader], paths_of: Callable[..., Callable[[str], str]]) -> None:
    stranger, path_of = reader(None), paths_of()
    for name in READ:
        answer = stranger.get(path_of(name))
        assert answer.status_code == 302 and answer["Location"].startswith("/login?next="), name
        assert stranger.get(path_of(name), fragment="live").status_code == 401, name
    for name in ACT:
        answer = stranger.post(path_of(name), justification="why")
        assert answer.status_code == 302 and answer["Location"] == "/login?next=/", name


def test_acts_need_the_token(reader: Callable[..., Reader], paths_of: Callable[..., Callable[[str], str]]) -> None:
    path_of = paths_of()
    for name in ACT:
        answer = reader(min(ACT[name], default="operator"), checks_csrf=True).post(path_of(name), justification="why")
        assert answer.status_code == 403 and b"form has expired" in answer.content, name


def test_an_act_leads_to_its_form(
    operator: Reader, finance: Reader, paths_of: Callable[..., Callable[[str], str]]
) -> None:
    path_of = paths_of()
    for name in sorted(set(ACT) - {"start", "password", "second_factor", "new_batch", "changes"}):
        who = finance if name in ("decision", "inquiries", "delegations", "claims", "releases") else operator
        path = path_of(name)
        answer = who.get(path)
        if answer.status_code == 405:  # a ramp's: only the ramp names its agent
            assert "/ramps/" in path and "This URL only accepts forms" in answer.content.decode(), name
        else:
            assert answer.status_code == 302 and path != answer["Location"], name
            assert who.get(answer["Location"]).status_code in (200, 404), name  # the named object may be gone


def test_somebody_without_a_role_is_told_so(reader: Callable[..., Reader]) -> None:
    answer = reader("none").get("/")
    assert answer.status_code == 403 and b"You have no role yet" in answer.content


def test_a_page_says_which_role_would_do(finance: Reader) -> None:
    answer = finance.get("/fleet")
    assert answer.status_code == 403 and b"Operator or Auditor" in answer.content


def test_pages_are_not_kept_by_caches_and_run_no_inline_script(operator: Reader) -> None:
    answer = operator.get("/runs")
    assert answer["Cache-Control"] == "no-store"
    assert (
        "unsafe" not in answer["Content-Security-Policy"] and "script-src 'self'" in answer["Content-Security-Policy"]
    )
    page = answer.content.decode()
    assert "style=" not in page and "onclick" not in page and page.count("<script") == page.count("<script src=")
