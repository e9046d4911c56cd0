"""Erasing by API and console, and what both show of an erased run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.test import Client

from durableagents.contrib.encryption import master_keys
from durableagents.contrib.encryption.models import Erasure
from durableagents.identity.auth import issue_key
from runs.models import Run
from tests.contrib.encryption.erasing import CANARY, dumped, filled, found_in
from tests.contrib.encryption.test_payloads import cold
from tests.integration.api.conftest import Api, person
from tests.integration.runs.stage import Stage, calling, fresh
from tests.world import Toolbox, agent_of, ends_with

WHY = "Request of the person concerned, ticket 4711"


@pytest.fixture(autouse=True)
def _own_keys() -> Iterator[None]:
    cold()
    yield
    master_keys.forget()
    cold()


def administrator() -> Any:
    return person("anna", "operator", is_superuser=True, is_staff=True)


def test_an_administrator_without_a_role_erases_nothing(stage: Stage) -> None:
    run = stage.start(agent_of(ends_with("done")))
    boss = Api(issue_key(person("boss", is_superuser=True, is_staff=True), "x"))
    listed = boss.get("erasures", agent=run.graph_id)
    for known in (run.pk, UUID(int=1)):
        refused = boss.post("erasures", {"runs": [str(known)], "justification": WHY})
        assert (refused.status_code, refused.json()["detail"]) == (403, listed.json()["detail"])


def test_the_api_erases_for_administrators_and_then_says_erased(stage: Stage, tools: Toolbox) -> None:
    run = filled(stage, tools)
    body = {"justification": WHY}
    operator, admin = Api(issue_key(person("olga", "operator"), "x")), Api(issue_key(administrator(), "x"))
    assert operator.post(f"runs/{run.pk}/erase", body).status_code == 403
    assert Api(issue_key(person("nobody"), "x")).post(f"runs/{run.pk}/erase", body).status_code in (403, 404)
    assert admin.post(f"runs/{run.pk}/erase", {}).status_code == 422
    active = stage.start(calling(tools, "pay", amount=2000))
    refused = admin.post(f"runs/{active.pk}/erase", body)
    assert (refused.status_code, refused.json()["code"]) == (409, "not-erasable")
    assert CANARY in admin.get(f"runs/{run.pk}/events").content.decode()

    key = {"Idempotency-Key": "once"}
    answers = [admin.post(f"runs/{run.pk}/erase", body, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200] and answers[0].content == answers[1].content
    assert answers[0].json()["reason"] == WHY and answers[0].json()["by"] == "key:anna"
    assert admin.post(f"runs/{run.pk}/erase", body).json()["at"] == answers[0].json()["at"]

    approval = run.approvals.get()
    for path in ("", "/events", "/ledger", "/overrides", "/log", "/messages", "/verification"):
        answer = admin.get(f"runs/{run.pk}{path}")
        assert answer.status_code == 200 and CANARY not in answer.content.decode(), path
    output = StringIO()
    call_command("runs", "show", str(run.pk), "--as", "anna", stdout=output)
    assert re.search(r"erased_at +20", output.getvalue())
    assert admin.get(f"runs/{run.pk}").json()["hidden"] and admin.get(f"runs/{run.pk}").json()["output"] is None
    events = admin.get(f"runs/{run.pk}/events").json()["results"]
    assert events[0]["erased"] and events[0]["payload"] is None and events[-1]["data"]["reason"] == WHY
    found = admin.get(f"runs/{run.pk}/verification").json()
    assert found["holds"] and WHY in found["notes"][0]
    for path in (f"runs/{run.pk}/transcript", f"approvals/{approval.pk}"):
        gone = admin.get(path)
        assert gone.status_code in (200, 410) and CANARY not in gone.content.decode(), path
    gone = admin.get(f"runs/{run.pk}/transcript")
    assert (gone.status_code, gone.json()["code"]) == (410, "erased") and WHY in gone.json()["detail"]
    assert admin.post(f"runs/{run.pk}/retry", body).status_code == 410
    assert CANARY not in admin.get("runs").content.decode() and CANARY not in admin.get("audit").content.decode()


def test_a_repeated_start_of_an_erased_run_is_answered_and_starts_nothing(stage: Stage) -> None:
    agent = agent_of(ends_with("done"))
    admin = Api(issue_key(administrator(), "x"))
    start = {"agent": agent.graph_id, "input": {"text": CANARY}}
    key = {"Idempotency-Key": "order-7"}
    first = admin.post("runs", start, headers=key).json()
    run = Run.objects.get(pk=first["id"])
    stage.settle(run)
    assert admin.post(f"runs/{run.pk}/erase", {"justification": WHY}).status_code == 200
    again = admin.post("runs", start, headers=key)
    assert (again.status_code, again.json()["code"], again.json()["run_id"]) == (410, "erased", first["id"])
    assert Run.objects.count() == 1 and found_in(dumped()) == []


def test_the_console_erases_and_shows_that_it_is_erased(stage: Stage, tools: Toolbox) -> None:
    run = filled(stage, tools)
    page, act = f"/runs/{run.pk}", f"/runs/{run.pk}/erasures"
    admin, operator = Client(), Client()
    admin.force_login(administrator())
    operator.force_login(person("olga", "operator"))
    assert "erasing" in admin.get(page).content.decode() and CANARY in admin.get(page).content.decode()
    assert 'id="erasing"' not in operator.get(page).content.decode()
    assert operator.post(act, {"justification": WHY}).status_code == 403
    refused = admin.post(act, {"justification": " "})
    assert refused.status_code == 422 and not Erasure.objects.exists()
    assert admin.post(act, {"justification": WHY}).status_code == 302
    assert fresh(run).erased_at is not None
    approval = run.approvals.get()
    for tab in ("timeline", "transcript", "checkpoints", "decisions", "journal"):
        value = admin.get(f"{page}?tab={tab}")
        text = value.content.decode()
        assert value.status_code == 200 and CANARY not in text and WHY in text, tab
        assert text.count("Content erased on") == 1 and "was erased.</b>" not in text, tab
        assert "not trustworthy" not in text and "is damaged" not in text, tab
        assert 'id="act-retry"' not in text and 'id="erasing"' not in text
    for path in (f"/inbox/{approval.pk}", "/runs", "/audit", f"/runs/{run.pk}/events/1/payload", "/inbox"):
        value = admin.get(path)
        assert value.status_code in (200, 410) and CANARY not in value.content.decode(), path
        assert "inbox/" not in path or "Content erased on" in value.content.decode()
    assert admin.get(f"/runs/{run.pk}/events/1/payload").status_code == 410
    assert WHY in admin.get(f"/runs/{run.pk}/verification").content.decode()


# Columns of runs' tables that erasure blanks or whose rows it deletes; of `sealed`, `state` and `clear` see README.md.
BLANKED = {
    "approvals_approval": {"title", "effect", "plan", "evidence", "documents", "why", "same", "call", "amount"},
    "approvals_decision": {"justification", "before", "after", "standing", "proof"},
    "approvals_delegation": {"reason"},
    "approvals_inquiry": {"question", "answer"},
    "approvals_standinggrant": {"fields", "reason"},
    "ledger_actrecord": {"justification", "before", "after"},
    "ledger_ledgerentry": {"digest"},
    "ledger_overriderecord": {"justification", "before", "after"},
    "runs_cachedread": {"*"},
    "runs_logline": {"*"},
    "runs_overheard": {"*"},
    "runs_run": {"about"},
    "runs_searchterm": {"*"},
    "runs_telling": {"*"},
    "runs_wait": {"detail", "lacking"},
}
# Under the key.
ENCRYPTED = {"ledger_event": {"sealed"}, "runs_checkpoint": {"state"}}
# Names, states, digests under a key, hashes and codes: nothing that a run or a person said.
METADATA = {
    "approvals_approval": "queue state tool rule plan_hash requested_by escalated_to timing",
    "approvals_assertion": "challenge terms rp_id origin credential public_key authenticator_data client_data "
    "signature",
    "approvals_claim": "by role ended_by why",
    "approvals_decision": "verdict plan_hash by role auth address chain code",
    "approvals_delegation": "code by role to ended_by",
    "approvals_escalation": "code queue cause",
    "approvals_inquiry": "code by role to outcome ended_by",
    "approvals_notice": "fact kind about state note",
    "approvals_standinggrant": "code queue tool agent same currency by role",
    "approvals_standinguse": "code",
    "encryption_erasure": "by role reason",
    "encryption_runkey": "master wrapped",
    "ledger_actrecord": "action subject queue by role auth address chain code prev_hash hash",
    "ledger_event": "kind slot fact clear prev_hash hash code",
    "ledger_head": "chain",
    "ledger_ledgerentry": "slot fact tool replay_class key input_hash external_id actor",
    "ledger_overriderecord": "action by role auth address chain code",
    "runs_attribute": "name kind word",
    "runs_batchitem": "outcome code why",
    "runs_checkpoint": "node fingerprint checksum",
    "runs_firing": "outcome why",
    "runs_held": "keys",
    "runs_incident": "cause proof host reached in_doubt",
    "runs_message": "name by sender_id outcome",
    "runs_permit": "key slot",
    "runs_poolcharge": "slot",
    "runs_rampstart": "why",
    "runs_run": "agent version graph_id state node tags trace_id created_by error_code parent_slot business_key lane "
    "goes_on_by fork_how",
    "runs_runtag": "tag",
    "runs_signal": "name sender_id taken_by",
    "runs_wait": "slot kind token_hash resolution resolved_by grant_hash consumed_by also",
    "seals_sealedhead": "hash",
}
_COLUMNS = """
    SELECT c.relname, array_agg(a.attname::text) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
      AND format_type(a.atttypid, NULL) IN ('text', 'jsonb', 'bytea', 'text[]', 'character varying')
      AND (c.relname = 'runs_run' OR EXISTS (SELECT FROM pg_attribute r WHERE r.attrelid = c.oid AND NOT r.attisdropped
                                             AND r.attname IN ('run_id', 'approval_id')))
    GROUP BY 1"""


def test_each_column_of_a_runs_tables_is_blanked_or_declared_metadata(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS)
        columns = {table: set(names) for table, names in cursor.fetchall()}
    left = {
        table: sorted(names - known)
        for table, names in columns.items()
        if (known := _known(table)) != {"*"} and names - known
    }
    ours = {model._meta.db_table for app in ("runs", "ledger", "approvals", "encryption") for model in _models(app)}
    assert {table: names for table, names in left.items() if table in ours} == {}, "see encryption_blank"


def _known(table: str) -> set[str]:
    blanked = BLANKED.get(table, set())
    return blanked if "*" in blanked else blanked | ENCRYPTED.get(table, set()) | set(METADATA.get(table, "").split())


def _models(app: str) -> Any:
    return apps.get_app_config(app).get_models()
