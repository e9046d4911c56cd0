"""Who may call what: every route of the URL conf, every role, and whether what it names is theirs. A route that is not
listed here fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from approvals.models import Approval
from ledger.actors import Actor
from ledger.web.roles import ROLES
from runs.models import Wait
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.api.conftest import NOBODY, SUPERUSER, Api, is_problem

EVERY = frozenset(ROLES)
OPERATE = frozenset({"operator"})
# Past the door; then the run decides: see STOPS.
STOP = EVERY - {"auditor"}
PUBLIC = frozenset({*ROLES, NOBODY, SUPERUSER, None})
# Whoever sets queues up, whatever their roles are.
ADMINS = frozenset({SUPERUSER})
NOWHERE = UUID(int=1)
SHOP = Actor("key", "shop", role="integrator", auth="api_key", address="192.0.2.1")

# What holds nothing but payloads, and which roles read those of every run: see test_payloads.py.
ALL_PAYLOAD, READERS = {"api-run-transcript", "api-run-live", "api-run-view"}, {"operator", "auditor"}
# (route name, method) → who gets past the door. What the body or the id is worth is another question.
MATRIX: dict[tuple[str, str], frozenset[Any]] = {
    ("api-runs", "GET"): EVERY,
    ("api-runs", "POST"): frozenset({"integrator", "operator"}),
    ("api-runs-bulk", "POST"): frozenset({"integrator", "operator"}),
    ("api-run", "GET"): EVERY,
    ("api-run-events", "GET"): EVERY,
    ("api-run-ledger", "GET"): EVERY,
    ("api-run-why", "GET"): EVERY,
    ("api-run-latest", "GET"): EVERY,
    ("api-run-children", "GET"): EVERY,
    ("api-run-log", "GET"): EVERY,
    ("api-run-transcript", "GET"): EVERY,
    ("api-run-live", "GET"): EVERY,
    ("api-run-overrides", "GET"): EVERY,
    ("api-run-verification", "GET"): EVERY,
    ("api-verification", "GET"): EVERY - {"integrator"},
    ("api-run-pause", "POST"): STOP,
    ("api-run-resume", "POST"): STOP,
    ("api-run-context", "POST"): OPERATE,
    ("api-run-requeue", "POST"): OPERATE,
    ("api-fleet-dead", "POST"): OPERATE,
    ("api-fleet-drain", "POST"): OPERATE,
    ("api-run-cancel", "POST"): STOP,
    # The installation says who besides operators: see test_budget.py.
    ("api-run-budget", "POST"): STOP - {"integrator"},
    ("api-run-models", "GET"): EVERY,
    ("api-run-withheld", "GET"): EVERY,
    ("api-run-models", "POST"): OPERATE,
    ("api-prices", "GET"): EVERY,
    ("api-limits", "GET"): EVERY,
    ("api-limits", "POST"): OPERATE,
    ("api-limit-reset", "POST"): OPERATE,
    ("api-limit-open", "POST"): OPERATE,
    ("api-limit-close", "POST"): OPERATE,
    ("api-run-priority", "POST"): OPERATE,
    ("api-halts", "GET"): EVERY,
    ("api-halts", "POST"): OPERATE,
    ("api-halt", "GET"): EVERY,
    ("api-halt-stage", "POST"): OPERATE,
    ("api-halt-lift", "POST"): OPERATE,
    ("api-run-undo", "GET"): EVERY,
    ("api-run-fork", "GET"): EVERY,
    ("api-run-fork", "POST"): OPERATE,
    ("api-run-start-again", "GET"): EVERY,
    ("api-run-start-again", "POST"): OPERATE,
    ("api-run-retry", "POST"): OPERATE,
    ("api-run-reconcile", "GET"): EVERY,
    ("api-run-reconcile", "POST"): OPERATE,
    ("api-run-reconcile-withdraw", "POST"): OPERATE,
    ("api-run-reconcile-ask", "POST"): OPERATE,
    ("api-run-signals", "POST"): frozenset({"integrator", "operator"}),
    ("api-run-messages", "GET"): EVERY,
    ("api-run-message", "GET"): EVERY,
    ("api-run-message", "POST"): frozenset({"integrator", "operator"}),
    ("api-run-view", "GET"): EVERY,
    # The question decides who may.
    ("api-run-answers", "POST"): EVERY,
    ("api-schedules", "GET"): EVERY,
    ("api-schedules", "POST"): frozenset({"integrator", "operator"}),
    ("api-schedule", "GET"): EVERY,
    ("api-schedule", "POST"): frozenset({"integrator", "operator"}),
    ("api-schedule-pause", "POST"): frozenset({"integrator", "operator"}),
    ("api-schedule-resume", "POST"): frozenset({"integrator", "operator"}),
    ("api-schedule-delete", "POST"): frozenset({"integrator", "operator"}),
    ("api-pools", "GET"): EVERY,
    ("api-pools", "POST"): frozenset({"operator"}),
    ("api-pool", "GET"): EVERY,
    ("api-pool", "POST"): frozenset({"operator"}),
    ("api-pool-off", "POST"): frozenset({"operator"}),
    ("api-run-pools", "GET"): EVERY,
    ("api-bulk", "GET"): EVERY,
    # Past the door; what becomes of each run is that run's to say.
    ("api-bulk", "POST"): STOP,
    ("api-bulk-one", "GET"): EVERY,
    ("api-bulk-items", "GET"): EVERY,
    ("api-bulk-start", "POST"): STOP,
    ("api-bulk-stop", "POST"): STOP,
    ("api-agents", "GET"): EVERY,
    ("api-versions", "GET"): EVERY,
    ("api-version-close", "POST"): OPERATE,
    ("api-migrations", "POST"): OPERATE,
    ("api-migrations-look", "POST"): OPERATE | {"auditor"},
    ("api-version-open", "POST"): OPERATE,
    ("api-ramps", "GET"): EVERY,
    ("api-ramps", "POST"): OPERATE,
    ("api-ramp", "GET"): EVERY,
    ("api-ramp-raise", "POST"): OPERATE,
    ("api-ramp-resume", "POST"): OPERATE,
    ("api-ramp-rollback", "POST"): OPERATE,
    ("api-ramp-finish", "POST"): OPERATE,
    ("api-agent", "GET"): EVERY,
    ("api-schema", "GET"): EVERY,
    ("api-fleet", "GET"): frozenset({"operator", "auditor"}),
    ("api-incidents", "GET"): frozenset({"operator", "auditor"}),
    ("api-run-incidents", "GET"): EVERY,
    ("api-approvals", "GET"): EVERY,
    ("api-approval", "GET"): EVERY,
    # Whoever reads what is asked: see tests/integration/api/test_documents.py.
    ("api-document", "GET"): EVERY,
    ("api-document-pages", "GET"): EVERY,
    ("api-document-page", "GET"): EVERY,
    # The queue decides who may; see test_approvals.py. Nobody without any role gets as far as the queue.
    ("api-approval-decision", "POST"): EVERY,
    # Likewise; whoever is asked answers, and whoever has it gives it back: see
    # tests/integration/api/test_consulting.py.
    ("api-inquiries", "POST"): EVERY,
    ("api-inquiry-answer", "POST"): EVERY,
    ("api-inquiry-withdraw", "POST"): EVERY,
    ("api-delegations", "POST"): EVERY,
    ("api-delegation-end", "POST"): EVERY,
    ("api-approval-claim", "POST"): EVERY,
    ("api-approval-release", "POST"): EVERY,
    ("api-queues", "GET"): EVERY | {SUPERUSER},
    ("api-queues", "POST"): ADMINS,
    ("api-queue", "GET"): EVERY | {SUPERUSER},
    ("api-queue", "POST"): ADMINS,
    ("api-queue-close", "POST"): ADMINS,
    ("api-queue-open", "POST"): ADMINS,
    ("api-queue-remove", "POST"): ADMINS,
    ("api-queue-limit", "POST"): ADMINS,
    ("api-queue-proof", "POST"): ADMINS,
    ("api-queue-reasons", "POST"): ADMINS,
    ("api-queue-grants", "POST"): ADMINS,
    ("api-grants", "GET"): EVERY | {SUPERUSER},
    ("api-grant", "GET"): EVERY | {SUPERUSER},
    ("api-grant-end", "POST"): EVERY | {SUPERUSER},
    ("api-queue-lift", "POST"): ADMINS,
    ("api-policies", "GET"): EVERY | {SUPERUSER},
    ("api-policies", "POST"): ADMINS,
    ("api-policies-restore", "POST"): ADMINS,
    ("api-policies-try", "POST"): OPERATE | {"auditor", SUPERUSER},
    ("api-policy", "GET"): EVERY | {SUPERUSER},
    ("api-policy", "POST"): ADMINS,
    ("api-policy-retire", "POST"): ADMINS,
    ("api-changes", "GET"): OPERATE | {"auditor", SUPERUSER},
    ("api-change", "GET"): OPERATE | {"auditor", SUPERUSER},
    # Past the door; then it is what the change needs that counts: see tests/integration/approvals/test_rule_changes.py.
    ("api-change-apply", "POST"): OPERATE | {"auditor", SUPERUSER},
    ("api-change-refuse", "POST"): OPERATE | {"auditor", SUPERUSER},
    ("api-change-withdraw", "POST"): OPERATE | {"auditor", SUPERUSER},
    ("api-four-eyes", "GET"): OPERATE | {"auditor", SUPERUSER},
    ("api-four-eyes", "POST"): ADMINS,
    # Whose deputy it is decides.
    ("api-deputies", "POST"): EVERY | {SUPERUSER},
    ("api-deputy-revoke", "POST"): EVERY | {SUPERUSER},
    ("api-notice-settings", "GET"): EVERY | {SUPERUSER},
    ("api-notice-settings", "POST"): EVERY | {SUPERUSER},
    ("api-notice-test", "POST"): EVERY | {SUPERUSER},
    # One's own; of others for operators, auditors and administrators: see tests/integration/api/test_notices.py.
    ("api-deliveries", "GET"): EVERY | {SUPERUSER},
    ("api-delivery-replay", "POST"): OPERATE | {SUPERUSER},
    ("api-channels", "GET"): frozenset({"operator", "auditor", SUPERUSER}),
    ("api-channels", "POST"): ADMINS,
    ("api-channel", "GET"): frozenset({"operator", "auditor", SUPERUSER}),
    ("api-channel", "POST"): ADMINS,
    ("api-channel-end", "POST"): ADMINS,
    ("api-channel-test", "POST"): ADMINS,
    ("api-queue-timing", "GET"): EVERY | {SUPERUSER},
    ("api-queue-timing", "POST"): ADMINS,
    ("api-calendars", "GET"): EVERY | {SUPERUSER},
    ("api-calendars", "POST"): ADMINS,
    ("api-calendar", "GET"): EVERY | {SUPERUSER},
    ("api-calendar-remove", "POST"): ADMINS,
    # Who is away decides.
    ("api-absences", "POST"): EVERY | {SUPERUSER},
    ("api-absence-end", "POST"): EVERY | {SUPERUSER},
    ("api-audit", "GET"): EVERY - {"integrator"},
    ("api-callback", "POST"): PUBLIC,
}
UNLISTED = {"api-unknown"}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CALLERS = (*ROLES, NOBODY, SUPERUSER, None)


def api_routes(resolver: Any = None, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(name, path) of every route under /api/."""
    for entry in (resolver or get_resolver()).url_patterns:
        path = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from api_routes(entry, path)
        elif isinstance(entry, URLPattern) and path.lstrip("^").startswith("api"):
            yield str(entry.name), path


def address(path: str) -> str:
    for placeholder in (
        "<uuid:run_id>",
        "<uuid:approval_id>",
        "<uuid:wait_id>",
        "<str:token>",
        "<str:name>",
        "<str:queue>",
        "<str:policy>",
        "<str:calendar>",
        "<str:reference>",
        "<uuid:schedule_id>",
        "<uuid:batch_id>",
        "<uuid:halt>",
        "<uuid:change_id>",
        "<uuid:process_id>",
    ):
        path = path.replace(placeholder, str(NOWHERE))
    path = path.replace("<int:pool_id>", "404").replace("<int:ramp_id>", "404").replace("<str:version>", "9.9.9")
    for number in (
        "<int:n>",
        "<int:page>",
        "<int:deputy_id>",
        "<int:delivery_id>",
        "<int:channel_id>",
        "<int:absence_id>",
        "<int:grant_id>",
    ):
        path = path.replace(number, "404")
    return f"/{path}"


def test_every_route_is_in_the_matrix() -> None:
    named = {name for name, _ in api_routes()} - UNLISTED
    assert named == {name for name, _ in MATRIX}


@each_case("role", CALLERS)
def test_each_role_gets_exactly_what_is_its_own(caller: Callable[[Any], Api], role: str | None) -> None:
    wrong = []
    for name, path in api_routes():
        if name in UNLISTED:
            continue
        offered = {method for known, method in MATRIX if known == name}
        for method in METHODS:
            answer = caller(role).send(address(path), b"{}", method=method)
            is_public = PUBLIC in {MATRIX[name, m] for m in offered}
            if role is None and not is_public:
                expected = answer.status_code == 401 and "Bearer" in answer["WWW-Authenticate"]
            elif method not in offered:
                expected = answer.status_code == 405
            elif role in MATRIX[name, method]:
                expected = answer.status_code in (200, 202, 404, 422)
            else:
                expected = answer.status_code == 403
            if not expected:
                wrong.append((method, path, answer.status_code))
            elif answer.status_code >= 400:
                is_problem(answer, answer.status_code)
    assert wrong == []


# What an address may name, and one that somebody else has. What belongs to nobody is the same for all.
def _others(caller: Callable[[Any], Api]) -> dict[str, str]:
    run = lifecycle.start("order@1.0.0", {"item": "theirs", "amount": 7}, by=SHOP)
    wait = Wait.objects.create(
        id=uuid4(),
        run_id=run.pk,
        slot="0.1/1",
        kind="input",
        opened_at=timezone.now(),
        deadline=timezone.now() + timedelta(days=1),
        detail={"of": "integrator", "schema": {}, "title": "theirs"},
    )
    gate = Wait.objects.create(
        id=uuid4(), run_id=run.pk, slot="0.1/2", kind="approval", opened_at=wait.opened_at, deadline=wait.deadline
    )
    approval = Approval.objects.create(
        id=uuid4(),
        run_id=run.pk,
        wait_id=gate.pk,
        queue="finance_po",
        tool="buy",
        title="theirs",
        plan=b"{}",
        plan_hash="h",
        evidence=[],
        opened_at=gate.opened_at,
        deadline=gate.deadline,
    )
    nightly = {"name": "theirs", "agent": "order", "cron": "@daily", "input": {"item": "theirs", "amount": 1}}
    schedule = caller("operator").post("schedules", nightly).json()["id"]
    pool = {"name": "theirs", "resource": "tool_calls", "limit": 2, "scope": "all", "period": "month"}
    made = caller("operator").post("pools", pool | {"justification": "What may be spent."}).json()
    many = {"action": "pause", "runs": [str(run.pk)], "justification": "Hold on.", "start": False}
    batch = caller("operator").post("bulk", many).json()["id"]
    return {
        "<uuid:batch_id>": str(batch),
        "<uuid:run_id>": str(run.pk),
        "<uuid:wait_id>": str(wait.pk),
        "<uuid:approval_id>": str(approval.pk),
        "<uuid:schedule_id>": str(schedule),
        "<int:pool_id>": str(made["id"]),
    }


OF_NOBODY = {
    "<str:name>": "order",
    "<str:reference>": "order",
    "<str:version>": "1.0.0",
    "<int:ramp_id>": "404",
    "<str:queue>": "legal",
    "<str:policy>": "none",
    "<int:n>": "404",
    "<int:page>": "1",
    "<int:deputy_id>": "404",
    "<int:delivery_id>": "404",
    "<int:channel_id>": "404",
    "<uuid:halt>": "00000000-0000-0000-0000-000000000001",
    "<uuid:process_id>": "00000000-0000-0000-0000-000000000003",
    "<uuid:change_id>": "00000000-0000-0000-0000-000000000002",
    "<str:calendar>": "DE",
    "<int:absence_id>": "404",
    "<int:grant_id>": "404",
}
# A token is the right to use it, whoever has it.
BY_ITSELF = {"api-callback"}
# Acts on many runs: whoever asked for one, operators and auditors.
OF_WHO_ASKED = {"api-bulk-one", "api-bulk-items"}


def test_what_is_anothers_is_for_an_integrator_what_there_is_not(caller: Callable[[Any], Api]) -> None:
    """The same answer to the letter, for each route, each method and each body: neither found, nor forbidden, nor
    wrong."""
    others = _others(caller)
    nowhere = {part: "404404" if part.startswith("<int") else str(uuid4()) for part in others}
    differing = []
    for name, path in api_routes():
        parts = set(re.findall(r"<[^>]+>", path))
        assert parts <= others.keys() | OF_NOBODY.keys() or name in UNLISTED | BY_ITSELF, f"say whose: {path}"
        if name in UNLISTED | BY_ITSELF or not parts & others.keys():
            continue
        for method in METHODS:
            for body in (b"{}", b"[", b'{"justification": "Because I say so.", "answer": 1, "payload": 1}'):
                told = []
                for ids in (others, nowhere):
                    where = path
                    for part, value in (ids | OF_NOBODY).items():
                        where = where.replace(part, value)
                    answer = caller("integrator").send(f"/{where}", b"" if method == "GET" else body, method=method)
                    text = answer.content.decode()
                    for value in ids.values():
                        # As a name of its own: a pool's number may be part of a status, too.
                        text = re.sub(rf"(?<=['/\"]){re.escape(value)}(?=['/\"])", "<id>", text)
                    told.append((answer.status_code, text))
                allowed = "integrator" in MATRIX.get((name, method), ())
                if told[0] != told[1] or (allowed and told[0][0] != 404):
                    differing.append((method, path, body, *told))
    assert differing == []


def test_whoever_sees_all_runs_sees_anothers_too(caller: Callable[[Any], Api]) -> None:
    others = _others(caller)
    for name, path in api_routes():
        if (
            {"<str:name>", "<int:n>"} & set(re.findall(r"<[^>]+>", path))
            or name in BY_ITSELF
            or not set(re.findall(r"<[^>]+>", path)) & others.keys()
        ):
            continue
        for part, value in others.items():
            path = path.replace(part, value)
        theirs_alone = {"approver_finance", "approver_legal"} if name in OF_WHO_ASKED else set()
        for role in MATRIX.get((name, "GET"), frozenset()) - {"integrator"} - theirs_alone:
            is_hidden = name in ALL_PAYLOAD and role not in READERS
            assert caller(role).get(f"/{path}").status_code == (403 if is_hidden else 200), (role, path)


def test_head_is_as_open_as_get(caller: Callable[[Any], Api]) -> None:
    assert caller("auditor").send("fleet", b"", method="HEAD").status_code == 200
    assert caller("integrator").send("fleet", b"", method="HEAD").status_code == 403


def test_a_role_that_is_taken_away_is_gone_at_once(caller: Callable[[Any], Api]) -> None:
    api = caller("operator")
    assert api.get("fleet").status_code == 200
    from django.contrib.auth.models import Group

    Group.objects.get(name="operator").user_set.clear()
    assert is_problem(api.get("fleet"), 403, "forbidden")


def test_a_group_that_is_no_role_opens_nothing(caller: Callable[[Any], Api]) -> None:
    from tests.integration.api.conftest import issue_key, person

    user = person("admin of another kind", "administrator", is_staff=True, is_superuser=True)
    assert is_problem(Api(issue_key(user, "test")).get("runs"), 403, "forbidden")
