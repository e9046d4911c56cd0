"""Permissions: every route, every role, own and foreign objects. A route that is not listed here fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import Group
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from approvals.models import Approval
from ledger.actors import Actor
from ledger.web.roles import ROLES
from runs.models import Wait
from runs.services import lifecycle
from tests.apps import offered
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem, issue_key, person
from tests.roles import ADMINS, EVERY, NOBODY, OPERATE, PUBLIC, START, STOP, SUPERUSER
from tests.tiers import many, sample

NOWHERE = UUID(int=1)
SHOP = Actor("key", "shop", role="integrator", auth="api_key", address="192.0.2.1")

# Only payloads, and the roles that read those of every run: see test_payloads.py.
ALL_PAYLOAD = {"api-run-transcript", "api-run-live", "api-run-view", "api-run-event-content", "api-run-evidence"}
READERS = {"operator", "auditor"}


def _by_route(*table: tuple[str, frozenset[Any], str]) -> dict[tuple[str, str], frozenset[Any]]:
    return {(name, method): who for method, who, names in table for name in names.split()}


# (route name, method) → who has access. The body and the id are judged separately.
MATRIX = _by_route(
    (
        "GET",
        EVERY,
        """
        api-runs api-run api-run-events api-run-event-content api-run-ledger api-run-why api-run-latest
        api-run-children api-run-log api-run-transcript api-run-live api-run-overrides api-run-verification
        api-run-models api-prices api-run-undo api-run-reconcile api-run-messages api-run-message
        api-run-view api-agents api-agent api-schema api-run-incidents api-approvals api-approval
        """,
    ),
    ("GET", PUBLIC - {None}, "api-me"),
    ("POST", START, "api-runs api-runs-bulk api-run-signals api-run-message"),
    ("GET", EVERY - {"integrator"}, "api-verification api-audit"),
    ("POST", STOP, "api-run-pause api-run-resume api-run-cancel"),
    (
        "POST",
        OPERATE,
        """
        api-run-context api-run-requeue api-fleet-dead api-fleet-drain api-run-models api-run-priority
        api-run-retry api-run-reconcile api-run-reconcile-withdraw api-run-reconcile-ask
        """,
    ),
    ("POST", STOP - {"integrator"}, "api-run-budget"),
    ("POST", EVERY, "api-run-answers api-approval-decision"),
    ("GET", OPERATE | {"auditor"}, "api-fleet api-incidents"),
    ("GET", EVERY | {SUPERUSER}, "api-queues api-queue"),
    (
        "POST",
        ADMINS,
        """
        api-queues api-queue api-queue-close api-queue-open api-queue-remove api-queue-limit api-queue-proof
        api-queue-reasons api-queue-lift
        """,
    ),
    ("GET", EVERY, "api-effects"),
    ("POST", PUBLIC, "api-callback"),
    *(row for rows in offered("addresses", "API") for row in rows),
)
UNLISTED = {"api-unknown"}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CALLERS = (*ROLES, NOBODY, SUPERUSER, None)


def api_routes(resolver: Any = None, prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in (resolver or get_resolver()).url_patterns:
        path = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from api_routes(entry, path)
        elif isinstance(entry, URLPattern) and path.lstrip("^").startswith("api"):
            yield str(entry.name), path


def address(path: str) -> str:
    """Return the address of something that does not exist."""
    path = re.sub(r"<int:\w+>", "404", path.replace("<str:version>", "9.9.9"))
    return "/" + re.sub(r"<\w+:\w+>", str(NOWHERE), path)


def test_every_route_is_in_the_matrix() -> None:
    named = {name for name, _ in api_routes()} - UNLISTED
    assert named == {name for name, _ in MATRIX}


def test_an_administrator_without_a_role_is_told_so(caller: Callable[[Any], Api]) -> None:
    boss = caller(SUPERUSER)
    body = boss.get("me").json()
    assert (body["roles"], body["is_administrator"], caller("operator").get("me").json()["is_administrator"]) == (
        [],
        True,
        False,
    )


@each_case("role", CALLERS)
def test_each_role_gets_exactly_what_is_its_own(caller: Callable[[Any], Api], role: str | None) -> None:
    """Methods that a route does not have are tried by one role, by no role and without a key."""
    wrong = []
    nth, routes = CALLERS.index(role), [*api_routes()]
    for name, path in sample(routes[nth:] + routes[:nth], 2):
        if name in UNLISTED:
            continue
        matching = {method for known, method in MATRIX if known == name}
        is_public = PUBLIC in {MATRIX[name, m] for m in matching}
        for method in METHODS if role in ("operator", NOBODY, None) else matching:
            answer = caller(role).send(address(path), b"{}", method=method)
            if role is None and not is_public:
                expected = answer.status_code == 401 and "Bearer" in answer["WWW-Authenticate"]
            elif method not in matching:
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


# What an address may name, and one that belongs to someone else; ownerless things are the same for all.
def _others(caller: Callable[[Any], Api]) -> dict[str, str]:
    run = lifecycle.start("order@1.0.0", {"item": "theirs", "amount": 7}, by=SHOP)
    time = {"opened_at": timezone.now(), "deadline": timezone.now() + timedelta(days=1)}
    detail = {"of": "integrator", "schema": {}, "title": "theirs"}
    wait = Wait.objects.create(id=uuid4(), run_id=run.pk, slot="0.1/1", kind="input", detail=detail, **time)
    gate = Wait.objects.create(id=uuid4(), run_id=run.pk, slot="0.1/2", kind="approval", **time)
    fields = {"queue": "finance_po", "tool": "buy", "title": "theirs", "plan": b"{}", "plan_hash": "h", "evidence": []}
    approval = Approval.objects.create(id=uuid4(), run_id=run.pk, wait_id=gate.pk, **fields, **time)
    made = {
        part: id for make in offered("addresses", "make_theirs") for part, id in make(caller("operator"), run).items()
    }
    return made | {
        "<uuid:run_id>": str(run.pk),
        "<uuid:wait_id>": str(wait.pk),
        "<uuid:approval_id>": str(approval.pk),
    }


OF_NOBODY = {
    **{"<str:name>": "order", "<str:reference>": "order", "<str:version>": "1.0.0", "<int:page>": "1"},
    **{"<str:queue>": "legal", "<str:policy>": "none", "<str:calendar>": "DE"},
    **{f"<int:{of}_id>": "404" for of in ("ramp", "deputy", "delivery", "channel", "absence", "grant", "webhook")},
    **{"<int:policy_id>": "404", "<int:hold_id>": "404", "<uuid:archived_id>": str(NOWHERE)},
    **{"<str:report>": "none", "<int:finding_id>": "404", "<int:stored_id>": "404"},
    **{f"<uuid:{of}>": str(NOWHERE) for of in ("halt", "process_id", "change_id")},
    **{"<int:n>": "404", "<int:seq>": "1"},
}
# A token is its own authority.
BY_ITSELF = {"api-callback"}
# Bulk actions: their requesters, operators and auditors.
OF_WHO_ASKED = {"api-bulk-one", "api-bulk-items"}
BODIES = (b"{}", b"[", b'{"justification": "Because I say so.", "answer": 1, "payload": 1}')


def test_what_is_anothers_is_for_an_integrator_what_there_is_not(caller: Callable[[Any], Api]) -> None:
    """The answer is identical for each route, method and body: 404 wherever integrators have access."""
    others = _others(caller)
    nowhere = {part: "404404" if part.startswith("<int") else str(uuid4()) for part in others}
    differing = []
    for name, path in api_routes():
        parts = set(re.findall(r"<[^>]+>", path))
        assert parts <= others.keys() | OF_NOBODY.keys() or name in UNLISTED | BY_ITSELF, f"say whose: {path}"
        if name in UNLISTED | BY_ITSELF or not parts & others.keys():
            continue
        for method in METHODS[: many(len(METHODS), 2)]:  # no route has others: see above
            allowed = "integrator" in MATRIX.get((name, method), ())
            for body in BODIES if method == "POST" else BODIES[:1]:
                items = []
                for ids in (others, nowhere):
                    where = path
                    for part, value in (ids | OF_NOBODY).items():
                        where = where.replace(part, value)
                    answer = caller("integrator").send(f"/{where}", b"" if method == "GET" else body, method=method)
                    text = answer.content.decode()
                    for value in ids.values():
                        # Only as a whole name: a shared budget's number may also be part of a status.
                        text = re.sub(rf"(?<=['/\"]){re.escape(value)}(?=['/\"])", "<id>", text)
                    items.append((answer.status_code, text))
                if items[0] != items[1] or (allowed and items[0][0] != 404):
                    differing.append((method, path, body, *items))
    assert differing == []


def test_someone_who_sees_all_runs_sees_anothers_too(caller: Callable[[Any], Api]) -> None:
    others = _others(caller)
    for name, path in api_routes():
        parts = set(re.findall(r"<[^>]+>", path))
        if {"<str:name>", "<int:n>"} & parts or name in BY_ITSELF or not parts & others.keys():
            continue
        for part, value in (others | {"<int:seq>": "1"}).items():
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
    Group.objects.get(name="operator").user_set.clear()
    assert is_problem(api.get("fleet"), 403, "forbidden")


def test_a_group_that_is_no_role_opens_nothing(caller: Callable[[Any], Api]) -> None:
    user = person("admin of another kind", "administrator", is_staff=True, is_superuser=True)
    assert is_problem(Api(issue_key(user, "test")).get("runs"), 403, "forbidden")
