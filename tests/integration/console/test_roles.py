"""Who may open what: every page and act of the console, for every role, and of a run whether it is theirs. An address
that isn't listed here fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from approvals.models import Policy
from approvals.policies import acts as policies
from approvals.policies.bodies import NewPolicyBody
from ledger.actors import Actor
from ledger.codec import pack
from ledger.models import ActRecord
from ledger.web.roles import ROLES
from runs.engine.agents import registry
from runs.models import Batch, Checkpoint
from runs.services import lifecycle
from runs.services.bulk import acts
from runs.services.bulk.bodies import BatchBody
from tests.cases import each_case
from tests.integration.console.accounts import boss, boss_account
from tests.integration.console.conftest import SHOP, Reader, State

pytestmark = pytest.mark.django_db

ALL = set(ROLES)
# Past the door; then the run decides: see test_stopping.py.
STOP = ALL - {"auditor"}
READ = {
    "overview": ALL,
    "inbox": ALL,
    "approval": ALL,
    "runs": ALL,
    "run": ALL,
    "verification": ALL,
    "reconcile": ALL,
    "audit": ALL - {"integrator"},
    "agents": ALL,
    "agent": ALL,
    "run-view": ALL,
    "view_value": ALL,
    "event_payload": ALL,
    "checkpoint_state": ALL,
    "versions": ALL,
    "migrations": ALL,
    "start": {"integrator", "operator"},
    "fleet": {"operator", "auditor"},
    "recoveries": {"operator", "auditor"},
    "verify_all": ALL - {"integrator"},
    "password": ALL,
    "account": ALL,
    "second_factor": ALL,
    "schedules": ALL,
    "pools": ALL,
    "limits": {"integrator", "operator", "auditor"},
    "context": {"operator"},
    "fleet_acts": {"operator"},
    "fork": ALL,
    "start_again": ALL,
    "queues": ALL,
    "queue": ALL,
    "batches": ALL,
    "new_batch": STOP,
    "batch": ALL,
    "policies": ALL,
    "policy": ALL,
    "notifications": ALL,
    "halts": ALL,
    "calendars": ALL,
    "calendar": ALL,
    "standing_grants": ALL,
    "standing_grant": ALL,
    "similar_outcomes": ALL,
    "notice_log": {"operator", "auditor"},
    "channels": {"operator", "auditor"},
    "rule_changes": {"operator", "auditor"},
    "rule_change": {"operator", "auditor"},
    "changes": {"approver_finance", "approver_legal"},
    "document": ALL,
    "document_page": ALL,
    "plan": ALL,
}
ACT = {
    "start": {"integrator", "operator"},
    "pauses": STOP,
    "resumptions": STOP,
    "cancellations": STOP,
    "budgets": STOP - {"integrator"},
    "answers": ALL,
    "retries": {"operator"},
    "reconciliations": {"operator"},
    "reconciliation_withdrawals": {"operator"},
    "reconciliation_askings": {"operator"},
    "models": {"operator"},
    "messages": {"integrator", "operator"},
    "decision": {"approver_finance", "approver_legal"},
    "inquiries": {"approver_finance", "approver_legal"},
    "delegations": {"approver_finance", "approver_legal"},
    "case_answers": ALL,
    "inquiry_withdrawals": ALL,
    "delegation_ends": ALL,
    "password": ALL,
    "new_batch": STOP,
    "claims": {"approver_finance", "approver_legal"},
    "releases": {"approver_finance", "approver_legal"},
    "batch_starts": STOP,
    "batch_stops": STOP,
    "changes": {"approver_finance", "approver_legal"},
    "account_session_ends": ALL,
    "account_key_revocations": ALL,
    "second_factor": ALL,
    "factor_removals": ALL,
    "recovery_codes": ALL,
    "sign_in_links": ALL,
    "sign_in_removals": ALL,
    "passkeys": ALL,
    "passkey_new": ALL,
    "passkey_names": ALL,
    "passkey_removals": ALL,
    "account_devices": ALL,
    "account_device_removals": ALL,
    "new_schedule": {"integrator", "operator"},
    "schedule_pauses": {"integrator", "operator"},
    "schedule_changes": {"integrator", "operator"},
    "schedule_resumptions": {"integrator", "operator"},
    "schedule_deletions": {"integrator", "operator"},
    "new_pool": {"operator"},
    "pool_limits": {"operator"},
    "pool_closings": {"operator"},
    "limit_settings": {"operator"},
    "limit_resets": {"operator"},
    "breaker_openings": {"operator"},
    "breaker_closings": {"operator"},
    "migration_looks": {"operator"},
    "migrating": {"operator"},
    "new_halt": {"operator"},
    "halt_stages": {"operator"},
    "halt_liftings": {"operator"},
    "version_closings": {"operator"},
    "version_openings": {"operator"},
    "new_ramp": {"operator"},
    "ramp_shares": {"operator"},
    "ramp_resumptions": {"operator"},
    "ramp_rollbacks": {"operator"},
    "ramp_completions": {"operator"},
    "forks": {"operator"},
    "new_starts": {"operator"},
    "requeues": {"operator"},
    "worker_drains": {"operator"},
    "host_deaths": {"operator"},
    "context_looks": {"operator"},
    "context_resumptions": {"operator"},
    "context_retries": {"operator"},
    # Administrators, which is no role; whose deputy it is decides.
    "new_queue": set(),
    "queue_changes": set(),
    "queue_closings": set(),
    "queue_openings": set(),
    "queue_removals": set(),
    "queue_limits": set(),
    "queue_lifts": set(),
    "queue_proofs": set(),
    "deputies": ALL,
    "deputy_revocations": ALL,
    "queue_reasons": set(),
    "queue_grants": set(),
    "standing_grant_ends": ALL,
    "queue_timings": set(),
    "new_calendar": set(),
    "calendar_changes": set(),
    "calendar_removals": set(),
    "absences": ALL,
    "absence_endings": ALL,
    "new_policy": set(),
    "policy_versions": set(),
    "policy_retirements": set(),
    "policy_restorations": set(),
    "policy_tries": {"operator", "auditor"},
    "notice_settings": ALL,
    "notice_tests": ALL,
    "notice_browser": ALL,
    "notice_replays": {"operator"},
    "rule_change_agreements": {"operator", "auditor"},
    "rule_change_refusals": {"operator", "auditor"},
    "rule_change_withdrawals": {"operator", "auditor"},
    "four_eyes": set(),
    "new_channel": set(),
    "channel_changes": set(),
    "channel_ends": set(),
    "channel_tests": set(),
}
# What holds nothing but payloads, and which roles read those of every run.
ALL_PAYLOAD = {"run-view", "view_value", "event_payload", "checkpoint_state"}
READERS = {"operator", "auditor"}
STOPS = {"pauses", "resumptions", "cancellations", "budgets"}
OPEN = {
    "login",
    "demo_login",
    "logout",
    "sign_in_code",
    "sign_in_factor",
    "sso",
    "sso_callback",
    "passkey_sign_in",
    "service_worker",
}
# For whoever has a link, and nobody else: see test_setup.py, test_invitations.py, test_resets.py.
LINKS = {"setup_claim": "/setup/x", "invited": "/invited/x", "reset": "/reset", "reset_set": "/reset/x/y"}
# Administrators' alone, whatever roles somebody has.
ADMIN_READ = {"setup": "/setup", "people": "/people", "person": "/people/{user}"}
ADMIN_ACT = {
    "invitations": "/people/invitations",
    "invitation_revocations": "/people/invitations/404/revocations",
    "person_session_ends": "/people/{user}/session-ends",
    "person_reset_links": "/people/{user}/reset-links",
    "person_own_keys": "/people/{user}/own-keys",
    "person_payloads": "/people/{user}/payloads",
    "role_payloads": "/people/payloads",
    "person_roles": "/people/{user}/roles",
}
# Whoever an administrator lets.
ALLOWED = {"account_keys": "/account/keys"}
PATHS = {
    "overview": "/",
    "inbox": "/inbox",
    "approval": "/inbox/{id}",
    "decision": "/approvals/{id}/decision",
    "document": "/approvals/{id}/documents/1",
    "document_page": "/approvals/{id}/documents/1/pages/1",
    "plan": "/approvals/{id}/plan",
    "changes": "/approvals/{id}/changes",
    "inquiries": "/approvals/{id}/inquiries",
    "case_answers": "/approvals/{id}/inquiries/0/answers",
    "inquiry_withdrawals": "/approvals/{id}/inquiries/0/withdrawals",
    "delegations": "/approvals/{id}/delegations",
    "delegation_ends": "/approvals/{id}/delegations/0/ends",
    "claims": "/approvals/{id}/claims",
    "releases": "/approvals/{id}/releases",
    "runs": "/runs",
    "start": "/runs/new",
    "run": "/runs/{run}",
    "verification": "/runs/{run}/verification",
    "reconcile": "/reconcile",
    "audit": "/audit",
    "agents": "/agents",
    "agent": "/agents/buyer@1.0.0",
    "fleet": "/fleet",
    "recoveries": "/fleet/recoveries",
    "pauses": "/runs/{run}/pauses",
    "resumptions": "/runs/{run}/resumptions",
    "cancellations": "/runs/{run}/cancellations",
    "retries": "/runs/{run}/retries",
    "reconciliations": "/runs/{run}/reconciliations",
    "reconciliation_withdrawals": "/runs/{run}/reconciliations/withdrawals",
    "reconciliation_askings": "/runs/{run}/reconciliations/askings",
    "similar_outcomes": "/runs/{run}/reconciliations/similar",
    "budgets": "/runs/{run}/budgets",
    "models": "/runs/{run}/models",
    "messages": "/runs/{run}/messages/ask",
    "run-view": "/runs/{run}/views/summary",
    "view_value": "/runs/{run}/views/summary/value",
    "event_payload": "/runs/{run}/events/1/payload",
    "checkpoint_state": "/runs/{run}/checkpoints/1/state",
    "answers": "/runs/{run}/answers/{id}",
    "schedules": "/schedules",
    "new_schedule": "/schedules/new",
    "schedule_changes": "/schedules/{id}/changes",
    "schedule_pauses": "/schedules/{id}/pauses",
    "schedule_resumptions": "/schedules/{id}/resumptions",
    "schedule_deletions": "/schedules/{id}/deletions",
    "pools": "/pools",
    "new_pool": "/pools/new",
    "pool_limits": "/pools/404/limits",
    "pool_closings": "/pools/404/closings",
    "limits": "/limits",
    "limit_settings": "/limits/settings",
    "limit_resets": "/limits/resets",
    "breaker_openings": "/limits/openings",
    "breaker_closings": "/limits/closings",
    "halts": "/halts",
    "new_halt": "/halts/new",
    "halt_stages": "/halts/{id}/stages",
    "halt_liftings": "/halts/{id}/liftings",
    "versions": "/agents/buyer@1.0.0/versions",
    "migrations": "/agents/buyer@1.0.0/migrations",
    "migration_looks": "/agents/buyer@1.0.0/migrations/looks",
    "migrating": "/agents/buyer@1.0.0/migrations/acts",
    "version_closings": "/agents/buyer@1.0.0/closings",
    "version_openings": "/agents/buyer@1.0.0/openings",
    "new_ramp": "/agents/buyer@1.0.0/ramps",
    "ramp_shares": "/ramps/404/shares",
    "ramp_resumptions": "/ramps/404/resumptions",
    "ramp_rollbacks": "/ramps/404/rollbacks",
    "ramp_completions": "/ramps/404/completions",
    "requeues": "/runs/{run}/requeues",
    "fleet_acts": "/fleet/acts",
    "worker_drains": "/fleet/drains",
    "host_deaths": "/fleet/deaths",
    "context": "/runs/{run}/context",
    "context_looks": "/runs/{run}/context/looks",
    "context_resumptions": "/runs/{run}/context/resumptions",
    "context_retries": "/runs/{run}/context/retries",
    "fork": "/runs/{run}/fork",
    "forks": "/runs/{run}/forks",
    "start_again": "/runs/{run}/start-again",
    "new_starts": "/runs/{run}/new-starts",
    "batches": "/bulk",
    "new_batch": "/bulk/new",
    "batch": "/bulk/{batch}",
    "batch_starts": "/bulk/{batch}/starts",
    "batch_stops": "/bulk/{batch}/stops",
    "queues": "/queues",
    "new_queue": "/queues/new",
    "deputies": "/queues/deputies",
    "deputy_revocations": "/queues/deputies/404/revocations",
    "queue": "/queues/of/legal",
    "queue_changes": "/queues/of/legal/changes",
    "queue_closings": "/queues/of/legal/closings",
    "queue_openings": "/queues/of/legal/openings",
    "queue_removals": "/queues/of/legal/removals",
    "queue_limits": "/queues/of/legal/limits",
    "queue_lifts": "/queues/of/legal/lifts",
    "queue_proofs": "/queues/of/legal/proofs",
    "queue_reasons": "/queues/of/legal/reasons",
    "queue_grants": "/queues/of/legal/grants",
    "standing_grants": "/queues/grants",
    "standing_grant": "/queues/grants/404",
    "standing_grant_ends": "/queues/grants/404/ends",
    "policies": "/policies",
    "new_policy": "/policies/new",
    "policy": "/policies/of/buying",
    "policy_versions": "/policies/of/buying/versions",
    "policy_retirements": "/policies/of/buying/retirements",
    "policy_restorations": "/policies/restorations",
    "policy_tries": "/policies/tries",
    "rule_changes": "/changes",
    "rule_change": "/changes/{id}",
    "rule_change_agreements": "/changes/{id}/agreements",
    "rule_change_refusals": "/changes/{id}/refusals",
    "rule_change_withdrawals": "/changes/{id}/withdrawals",
    "four_eyes": "/changes/guards",
    "notifications": "/notifications",
    "notice_settings": "/notifications/settings",
    "notice_tests": "/notifications/tests",
    "notice_browser": "/notifications/browser",
    "notice_log": "/notifications/log",
    "notice_replays": "/notifications/log/404/replays",
    "channels": "/notifications/channels",
    "new_channel": "/notifications/channels/new",
    "channel_changes": "/notifications/channels/404/changes",
    "channel_ends": "/notifications/channels/404/ends",
    "channel_tests": "/notifications/channels/404/tests",
    "queue_timings": "/queues/of/legal/timings",
    "calendars": "/queues/calendars",
    "new_calendar": "/queues/calendars/new",
    "calendar": "/queues/calendars/of/DE",
    "calendar_changes": "/queues/calendars/of/DE/changes",
    "calendar_removals": "/queues/calendars/of/DE/removals",
    "absences": "/queues/absences",
    "absence_endings": "/queues/absences/404/endings",
    "verify_all": "/audit/verification",
    "password": "/account/password",
    "account": "/account",
    "account_session_ends": "/account/session-ends",
    "account_key_revocations": "/account/keys/404/revocations",
    "second_factor": "/account/second-factor",
    "factor_removals": "/account/second-factor/removals",
    "recovery_codes": "/account/second-factor/recovery-codes",
    "sign_in_links": "/account/sign-ins",
    "sign_in_removals": "/account/sign-ins/removals",
    "passkeys": "/account/passkeys",
    "passkey_new": "/account/passkeys/new",
    "passkey_names": "/account/passkeys/404/names",
    "passkey_removals": "/account/passkeys/404/removals",
    "account_devices": "/account/devices",
    "account_device_removals": "/account/devices/404/removals",
}


# Addresses of one run. To an integrator who neither started it nor has a tag of it, there is no such run.
OF_A_RUN = {name for name, path in PATHS.items() if "{run}" in path}


def path_of(name: str, owner: Reader | None = None) -> str:
    """The address, for a run that `owner` has started, or somebody else."""
    buyer = registry.find("buyer")
    if name in ("run-view", "view_value") and not buyer.views:
        buyer.view("summary", answers=State)(lambda state: state)
    if name == "policy" and not Policy.objects.exists():
        said = {
            "name": "buying",
            "agent": "buyer",
            "effect": "allow",
            "rule": "all of it",
            "justification": "as agreed",
        }
        policies.create(NewPolicyBody(**said), by=Actor("os", "root", auth="shell"))
    by = SHOP if owner is None or owner.user is None else replace(SHOP, person=owner.user.pk)
    run = lifecycle.start("buyer", {"item": "chairs"}, by=by).id
    if name == "checkpoint_state":
        kept = {"generation": 0, "node": "", "visit": 0, "fingerprint": "", "checksum": bytes(32), "at": timezone.now()}
        Checkpoint.objects.create(run_id=run, seq=1, state=pack({}), **kept)
    return PATHS[name].format(run=run, id=uuid4(), batch=_batch(run, by).pk if "{batch}" in PATHS[name] else "")


def _batch(run: UUID, by: Actor) -> Batch:
    """Somebody's act on many runs, that was looked at and not started."""
    body = BatchBody(action="pause", runs=[run], justification="Hold on.", start=False)
    return acts.make(body, [run], {"runs": 1}, by=by, held=frozenset({"operator"}))


def names() -> set[str]:
    def walk(patterns: list[URLPattern | URLResolver]) -> set[str]:
        return {n for p in patterns for n in (walk(p.url_patterns) if isinstance(p, URLResolver) else {str(p.name)})}

    return walk(get_resolver("durableagents.urls_console").url_patterns)


def test_every_address_has_its_line_here() -> None:
    assert names() == set(READ) | set(ACT) | OPEN | set(LINKS) | set(ADMIN_READ) | set(ADMIN_ACT) | set(ALLOWED)


def test_what_is_the_administrators_opens_for_them_and_for_no_role(reader: Callable[..., Reader]) -> None:
    root = boss()
    assert root.user is not None
    for role in (*ROLES, "none"):
        somebody = reader(role)
        for path in ADMIN_READ.values():
            assert somebody.get(path.format(user=root.user.pk)).status_code == 403, (role, path)
        for path in (*ADMIN_ACT.values(), *ALLOWED.values()):
            given = {"justification": "Let me in.", "may": "yes", "name": "mine", "days": "3"}
            assert somebody.post(path.format(user=root.user.pk), **given).status_code == 403, (role, path)
    for path in ADMIN_READ.values():
        assert root.get(path.format(user=root.user.pk)).status_code == 200, path
    for path in ADMIN_ACT.values():
        assert root.get(path.format(user=root.user.pk))["Location"].startswith("/people"), path
        assert root.post(path.format(user=404), justification="Try.").status_code in (404, 422), path
    assert not ActRecord.objects.exists()


def test_what_is_the_administrators_asks_others_to_sign_in_and_for_the_forms_token(
    reader: Callable[..., Reader],
) -> None:
    boss()
    for path in [path.format(user=1) for path in (*ADMIN_READ.values(), *ADMIN_ACT.values(), *ALLOWED.values())]:
        answer = reader(None).post(path, justification="why")
        assert answer.status_code == 302 and answer["Location"] == "/login?next=/", path
    for path in [path.format(user=1) for path in (*ADMIN_ACT.values(), *ALLOWED.values())]:
        strict = Reader(boss_account(), checks_csrf=True)
        assert strict.post(path, justification="why").status_code == 403, path


def test_a_link_opens_for_nobody_by_being_signed_in(reader: Callable[..., Reader]) -> None:
    for somebody in (reader("operator"), reader(None), boss()):
        for name, path in LINKS.items():
            assert somebody.get(path).status_code == (200 if name == "reset" else 404), name
    for path in LINKS.values():
        assert reader(None, checks_csrf=True).post(path, who="ada").status_code == 403, path


def test_an_address_of_a_run_is_known_as_one() -> None:
    def walk(patterns: list[URLPattern | URLResolver]) -> set[str]:
        return {
            name
            for each in patterns
            for name in (
                walk(each.url_patterns)
                if isinstance(each, URLResolver)
                else {str(each.name)} & ({str(each.name)} if "run_id" in each.pattern.converters else set())
            )
        }

    assert walk(get_resolver("durableagents.urls_console").url_patterns) == OF_A_RUN


@each_case("is_own", [True, False])
@each_case("role", ROLES)
def test_a_page_opens_for_its_roles_and_no_other(reader: Callable[..., Reader], role: str, is_own: bool) -> None:
    somebody = reader(role)
    owner = somebody if is_own else None
    opened = {name: somebody.client.get(path_of(name, owner), follow=True).status_code for name in READ}
    others = set() if is_own or role in ("operator", "auditor") else {"batch"}
    hidden = {
        "approval",
        "rule_change",
        "calendar",
        "changes",
        "standing_grant",
        "document",
        "document_page",
        "plan",
    } | others
    hidden |= OF_A_RUN if role == "integrator" and not is_own else set()
    may = {name: 404 if name in hidden else 200 for name in READ if role in READ[name]}
    if not is_own and role not in READERS:  # see test_payloads.py
        may = {name: 403 if name in ALL_PAYLOAD and status == 200 else status for name, status in may.items()}
    assert opened == {name: may.get(name, 403) for name in READ}


@each_case("is_own", [True, False])
@each_case("role", ROLES)
def test_an_act_is_refused_to_every_other_role(reader: Callable[..., Reader], role: str, is_own: bool) -> None:
    somebody = reader(role)
    for name in ACT:
        answer = somebody.post(path_of(name, somebody if is_own else None), justification="why", agent="buyer")
        if role == "integrator" and role in ACT[name] and name in OF_A_RUN and not is_own:
            assert answer.status_code == 404, name
            continue
        # Of runs that never waited at anybody's queue.
        may_stop = role == "operator" or (role == "integrator" and is_own and name != "budgets")
        assert (answer.status_code == 403) == (role not in ACT[name] or (name in STOPS and not may_stop)), name


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
        answer = reader(min(ACT[name], default="operator"), checks_csrf=True).post(path_of(name), justification="why")
        assert answer.status_code == 403 and b"form was too old" in answer.content, name


def test_address_of_an_act_leads_to_the_page_with_its_form(operator: Reader, finance: Reader) -> None:
    for name in sorted(set(ACT) - {"start", "password", "second_factor", "new_batch", "changes"}):
        who = finance if name in ("decision", "inquiries", "delegations", "claims", "releases") else operator
        answer = who.get(path_of(name))
        if answer.status_code == 405:  # of a ramp: its agent is named by the ramp alone
            assert "/ramps/" in path_of(name) and "Forms are sent to this address" in answer.content.decode(), name
        else:
            assert answer.status_code == 302 and path_of(name) != answer["Location"], name
            assert who.get(answer["Location"]).status_code in (200, 404), name  # what it names may be gone


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
