"""Who may open what: every page and act of the console, for every role. An address that isn't listed here fails."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from ledger.web.roles import ROLES
from runs.engine.agents import registry
from tests.console.conftest import Reader, State, start

pytestmark = pytest.mark.django_db

ALL = set(ROLES)
# Past the door; then the run decides: see test_stopping.py.
STOP = ALL - {"auditor"}
READ = {
    "overview": ALL, "inbox": ALL, "approval": ALL, "runs": ALL, "run": ALL, "verification": ALL, "reconcile": ALL,
    "audit": ALL - {"integrator"}, "agents": ALL, "agent": ALL, "run-view": ALL, "versions": ALL, "migrations": ALL,
    "start": {"integrator", "operator"},
    "fleet": {"operator", "auditor"},
    "recoveries": {"operator", "auditor"}, "verify_all": ALL - {"integrator"}, "password": ALL,
    "schedules": ALL, "pools": ALL, "limits": {"integrator", "operator", "auditor"},
    "fork": ALL, "start_again": ALL,
}  # fmt: skip
ACT = {
    "start": {"integrator", "operator"}, "pauses": STOP, "resumptions": STOP, "cancellations": STOP,
    "budgets": STOP - {"integrator"}, "answers": ALL, "retries": {"operator"}, "reconciliations": {"operator"},
    "models": {"operator"}, "messages": {"integrator", "operator"},
    "decision": {"approver_finance", "approver_legal"}, "password": ALL,
    "new_schedule": {"integrator", "operator"}, "schedule_pauses": {"integrator", "operator"},
    "schedule_changes": {"integrator", "operator"},
    "schedule_resumptions": {"integrator", "operator"}, "schedule_deletions": {"integrator", "operator"},
    "new_pool": {"operator"}, "pool_limits": {"operator"}, "pool_closings": {"operator"},
    "limit_settings": {"operator"}, "limit_resets": {"operator"},
    "breaker_openings": {"operator"}, "breaker_closings": {"operator"},
    "migration_looks": {"operator"}, "migrating": {"operator"},
    "version_closings": {"operator"}, "version_openings": {"operator"}, "new_ramp": {"operator"},
    "ramp_shares": {"operator"}, "ramp_resumptions": {"operator"}, "ramp_rollbacks": {"operator"},
    "ramp_completions": {"operator"}, "forks": {"operator"}, "new_starts": {"operator"},
}  # fmt: skip
STOPS = {"pauses", "resumptions", "cancellations", "budgets"}
OPEN = {"login", "demo_login", "logout"}
PATHS = {
    "overview": "/", "inbox": "/inbox", "approval": "/inbox/{id}", "decision": "/approvals/{id}/decision",
    "runs": "/runs", "start": "/runs/new",
    "run": "/runs/{run}", "verification": "/runs/{run}/verification", "reconcile": "/reconcile", "audit": "/audit",
    "agents": "/agents",
    "agent": "/agents/buyer@1.0.0", "fleet": "/fleet", "recoveries": "/fleet/recoveries",
    "pauses": "/runs/{run}/pauses", "resumptions": "/runs/{run}/resumptions",
    "cancellations": "/runs/{run}/cancellations", "retries": "/runs/{run}/retries",
    "reconciliations": "/runs/{run}/reconciliations",
    "budgets": "/runs/{run}/budgets", "models": "/runs/{run}/models",
    "messages": "/runs/{run}/messages/ask", "run-view": "/runs/{run}/views/summary",
    "answers": "/runs/{run}/answers/{id}", "schedules": "/schedules", "new_schedule": "/schedules/new",
    "schedule_changes": "/schedules/{id}/changes",
    "schedule_pauses": "/schedules/{id}/pauses", "schedule_resumptions": "/schedules/{id}/resumptions",
    "schedule_deletions": "/schedules/{id}/deletions", "pools": "/pools", "new_pool": "/pools/new",
    "pool_limits": "/pools/404/limits", "pool_closings": "/pools/404/closings",
    "limits": "/limits", "limit_settings": "/limits/settings", "limit_resets": "/limits/resets",
    "breaker_openings": "/limits/openings", "breaker_closings": "/limits/closings",
    "versions": "/agents/buyer@1.0.0/versions", "migrations": "/agents/buyer@1.0.0/migrations",
    "migration_looks": "/agents/buyer@1.0.0/migrations/looks", "migrating": "/agents/buyer@1.0.0/migrations/acts",
    "version_closings": "/agents/buyer@1.0.0/closings", "version_openings": "/agents/buyer@1.0.0/openings",
    "new_ramp": "/agents/buyer@1.0.0/ramps", "ramp_shares": "/ramps/404/shares",
    "ramp_resumptions": "/ramps/404/resumptions", "ramp_rollbacks": "/ramps/404/rollbacks",
    "ramp_completions": "/ramps/404/completions",
    "fork": "/runs/{run}/fork", "forks": "/runs/{run}/forks", "start_again": "/runs/{run}/start-again",
    "new_starts": "/runs/{run}/new-starts",
    "verify_all": "/audit/verification", "password": "/account/password",
}  # fmt: skip


def path_of(name: str) -> str:
    buyer = registry.find("buyer")
    if name == "run-view" and not buyer.views:
        buyer.view("summary", answers=State)(lambda state: state)
    return PATHS[name].format(run=start().id, id=uuid4())


def names() -> set[str]:
    def walk(patterns: list[URLPattern | URLResolver]) -> set[str]:
        return {n for p in patterns for n in (walk(p.url_patterns) if isinstance(p, URLResolver) else {str(p.name)})}

    return walk(get_resolver("durableagents.urls_console").url_patterns)


def test_every_address_has_its_line_here() -> None:
    assert names() == set(READ) | set(ACT) | OPEN


@pytest.mark.parametrize("role", ROLES)
def test_a_page_opens_for_its_roles_and_no_other(reader: Callable[..., Reader], role: str) -> None:
    somebody = reader(role)
    opened = {name: somebody.client.get(path_of(name), follow=True).status_code for name in READ}
    may = {name: 404 if name == "approval" else 200 for name in READ if role in READ[name]}
    assert opened == {name: may.get(name, 403) for name in READ}


@pytest.mark.parametrize("role", ROLES)
def test_an_act_is_refused_to_every_other_role(reader: Callable[..., Reader], role: str) -> None:
    for name in ACT:
        answer = reader(role).post(path_of(name), justification="why", agent="buyer")
        is_others = name in STOPS and role != "operator"  # somebody else's run, which never waited at anybody's queue
        assert (answer.status_code == 403) == (role not in ACT[name] or is_others), name


def test_nobody_gets_in_without_signing_in(reader: Callable[..., Reader]) -> None:
    for name in READ:
        path = path_of(name)
        answer = reader(None).get(path)
        assert answer.status_code == 302 and answer["Location"].startswith("/login?next="), name
        assert reader(None).get(path, fragment="live").status_code == 401, name


def test_acts_without_signing_in_change_nothing(reader: Callable[..., Reader]) -> None:
    for name in ACT:
        answer = reader(None).post(path_of(name), justification="why")
        assert answer.status_code == 302 and answer["Location"] == "/login?next=/", name


def test_acts_need_the_forms_own_token(reader: Callable[..., Reader]) -> None:
    for name in ACT:
        answer = reader(sorted(ACT[name])[0], checks_csrf=True).post(path_of(name), justification="why")
        assert answer.status_code == 403 and b"form was too old" in answer.content, name


def test_an_act_is_no_page(operator: Reader, finance: Reader) -> None:
    for name in sorted(set(ACT) - {"start", "password"}):
        who = finance if name == "decision" else operator
        assert who.get(path_of(name)).status_code == 405, name


def test_somebody_without_a_role_is_told_so(reader: Callable[..., Reader]) -> None:
    answer = reader("none").get("/")
    assert answer.status_code == 403 and b"You have no role yet" in answer.content


def test_a_page_says_which_role_would_do(finance: Reader) -> None:
    answer = finance.get("/fleet")
    assert answer.status_code == 403 and b"Operator, Auditor" in answer.content


def test_pages_are_not_kept_by_caches_and_run_no_inline_script(operator: Reader) -> None:
    answer = operator.get("/runs")
    assert answer["Cache-Control"] == "no-store"
    assert (
        "unsafe" not in answer["Content-Security-Policy"] and "script-src 'self'" in answer["Content-Security-Policy"]
    )
    page = answer.content.decode()
    assert "style=" not in page and "onclick" not in page and page.count("<script") == page.count("<script src=")
