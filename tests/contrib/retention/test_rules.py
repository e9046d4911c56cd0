"""Policies and legal holds: who sets them, which counts, what they keep; and archived runs over HTTP."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from durableagents.contrib.retention import archiving, client_keys, holds, policies, restoring, tables
from durableagents.contrib.retention.models import Archive, Hold, Policy
from ledger.actors import Actor
from ledger.errors import Forbidden, InvalidInput, JustificationRequired, NotFound
from ledger.models import ActRecord
from runs import features
from runs.models import IdempotencyRecord
from tests.contrib.retention.keeping import SHELL, archived, as_runtime, ended, gone, hold, picture, policy
from tests.contrib.retention.test_archiving import age_archives, files
from tests.integration.api.conftest import Api, person
from tests.integration.runs.stage import Stage, at_once
from tests.world import OLGA, Toolbox


def test_every_table_that_names_a_run_is_archived_or_kept_for_a_reason(stage: Stage) -> None:
    """A new table of a run has to be put into one of the lists of tables.py, or into a feature's `run_tables`."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
            "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attname = 'run_id' "
            "AND c.relname ~ '^(ledger|runs|approvals)_'"
        )
        names = {name for (name,) in cursor.fetchall()}
    assert names - {name for name, _, _ in tables.rows()} == {name for name in tables.KEPT if "encryption" not in name}


def test_of_several_policies_the_longest_counts(stage: Stage, tools: Toolbox) -> None:
    run = ended(stage, tools)
    short = policy(archive_days=1)
    for longer in ({"effects": "idempotent_with_key"}, {"state": "completed"}, {"agent": run.agent}):
        for days in (41, None):
            kept = policy(archive_days=days, **longer)
            assert archiving.run().archived == 0, longer
            policies.end(kept.pk, by=SHELL, justification="tried")
    other = policy(archive_days=41, effects="unsafe_on_replay")
    assert archiving.run(is_dry=True).notes == [f"archive run {run.pk}"] and not gone(run.pk)
    assert archiving.run().archived == 1 and archived(run.pk).policy == short.pk and other.pk
    kept = policy(delete_days=1000)
    policy(delete_days=1)
    age_archives()
    assert archiving.run().deleted == 0
    policies.end(kept.pk, by=SHELL, justification="tried")
    assert archiving.run().deleted == 0  # the first one keeps archives forever
    policies.end(short.pk, by=SHELL, justification="tried")
    assert archiving.run().deleted == 1


def test_what_is_no_policy_or_hold_is_refused(stage: Stage) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"archive_days": 0}, "archive_days"),
        ({"archive_days": 40_000}, "archive_days"),
        ({"archive_days": None, "delete_days": 3}, "delete_days"),
        ({"agent": "buyer@1.0.0"}, "agent"),
        ({"tag": " x"}, "tag"),
    ]
    for given, field in cases:
        with pytest.raises((InvalidInput, ValueError), match=field):
            policy(**given)
    for given in ({}, {"run_id": uuid4(), "tag": "x"}):
        with pytest.raises(InvalidInput):
            hold(**given)
    with pytest.raises(NotFound):
        hold(run_id=uuid4())
    with pytest.raises(JustificationRequired):
        hold(tag="x", justification=" ")
    for act in (policy, hold):
        with pytest.raises(Forbidden):
            _by(act, OLGA)
    with pytest.raises(CommandError, match="archive_days"):
        call_command("retention", "policy", "--archive-days", "0", "--reason", "none", stdout=io.StringIO())
    assert not Policy.objects.exists() and not Hold.objects.exists() and not ActRecord.objects.exists()


def test_the_runtime_role_sets_and_ends_rules(stage: Stage) -> None:
    def said(*args: str) -> str:
        out = io.StringIO()
        call_command("retention", *args, "--reason", "as the web process", stdout=out)
        return out.getvalue()

    with as_runtime():
        for start, end in ((("policy", "--archive-days", "3"), "end"), (("hold", "--tag", "x"), "lift")):
            assert "is in force" in said(*start)
            row = (Policy if end == "end" else Hold).objects.get()
            assert "was" in said(end, str(row.pk))
            with pytest.raises(CommandError, match="already"):
                said(end, str(row.pk))
    assert policies.in_force() == holds.in_force() == []
    kept, question = policy(), hold(tag="x")
    assert len(_ended(at_once(*[lambda: policies.end(kept.pk, by=SHELL, justification="at once")] * 3))) == 1
    assert len(_ended(at_once(*[lambda: holds.lift(question.pk, by=SHELL, justification="at once")] * 3))) == 1


def _ended(found: list[Any]) -> list[Any]:
    """Return those that ended a rule; all others were told that it had ended."""
    assert all(isinstance(each, (Policy, Hold, policies.NotInForce)) for each in found), found
    return [each for each in found if not isinstance(each, Exception)]


def _by(act: Callable[..., Any], by: Actor) -> None:
    if act is policy:
        policies.create(policies.RetentionPolicyBody(archive_days=3, justification="mine"), by=by)
    else:
        holds.place(holds.LegalHoldBody(tag="x", justification="mine"), by=by)


def test_a_hold_keeps_runs_and_archives_until_it_is_lifted(stage: Stage, tools: Toolbox) -> None:
    run, other = ended(stage, tools), ended(stage, tools, "other")
    policy(delete_days=1)
    by_run, by_time = hold(run_id=run.pk), hold(agent=other.agent, created_to=other.created_at)
    assert features.removal_refusal(run.pk) == f"Legal hold {by_run.pk} keeps the run"
    assert archiving.run().archived == 0
    holds.lift(by_time.pk, by=SHELL, justification="the case is over")
    assert archiving.run().archived == 1 and gone(other.pk) and not gone(run.pk)
    for given, counts in (
        ({"run_id": run.pk}, (1, 0)),
        ({"agent": run.agent, "created_from": run.created_at}, (1, 0)),
        ({"agent": other.agent, "created_to": other.created_at}, (0, 1)),
        ({"created_from": min(run.created_at, other.created_at)}, (1, 1)),
        ({"tag": "typed:wrong"}, (0, 0)),
        ({"business_key": "none"}, (0, 0)),
    ):
        found = holds.covered(Hold(**given))
        assert (found.live, found.archived) == counts, given
        assert ("It matches no run now" in str(found)) == (counts == (0, 0))
    late = hold(run_id=other.pk)
    age_archives()
    assert archiving.run().deleted == 0
    assert features.removal_refusal(other.pk) == f"Legal hold {late.pk} keeps the run"
    with pytest.raises(policies.NotInForce):
        holds.lift(by_time.pk, by=SHELL, justification="again")
    holds.lift(late.pk, by=SHELL, justification="the case is over")
    assert archiving.run().deleted == 1
    items = list(ActRecord.objects.filter(run_id=None).order_by("id").values_list("action", flat=True))
    assert items == ["retention_policy", *["retention_hold"] * 2, "retention_hold_lift", "retention_hold", items[-1]]
    with pytest.raises(restoring.NotArchived, match="was deleted on"):
        restoring.restore(other.pk, by=SHELL, justification="too late")


def test_forged_rules_and_a_clock_that_went_back_stop_everything(stage: Stage, tools: Toolbox) -> None:
    run = ended(stage, tools)
    rule = policy()
    Policy.objects.create(archive_days=1, reason="x", set_by="user:eve", at=rule.at)
    with pytest.raises(archiving.Stays, match="was not written by this installation"):
        archiving.run()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("DELETE FROM retention_policy WHERE set_by = 'user:eve'")
        assert archiving.run().archived == 1
        cursor.execute("UPDATE retention_archive SET at = at + interval '1 day'")
        cursor.execute("SET session_replication_role = origin")
    with pytest.raises(archiving.ClockBehind, match="Nothing was archived"):
        archiving.run()
    assert gone(run.pk)


def test_two_people_set_rules_where_the_installation_says_so(stage: Stage) -> None:
    from durableagents.contrib.change_control import services as changes
    from durableagents.contrib.change_control import setting as guards
    from ledger.errors import Proposed

    ada, bob = (person(name, is_superuser=True, is_staff=True) for name in ("ada", "bob"))
    first, second = (Actor("user", u.username, role="admin", auth="session", person=u.pk) for u in (ada, bob))
    guards.require(guards.GuardsBody(families=["retention", "roles"], justification="two of us"), by=first)
    body = policies.RetentionPolicyBody(archive_days=30, justification="we keep a month")
    with pytest.raises(Proposed) as waits:
        policies.create(body, by=first)
    assert not Policy.objects.exists()
    changes.apply(waits.value.change, by=second, justification="I agree")
    row = Policy.objects.get()
    assert (row.set_by, row.archive_days) == ("user:ada", 30)


def test_archived_runs_over_http(stage: Stage, tools: Toolbox, folder: Path) -> None:
    from durableagents.identity.auth import issue_key

    run = ended(stage, tools, "secret word")
    before = picture(run.pk)
    ada = person("ada", "auditor", is_superuser=True, is_staff=True)
    admin, reader = Api(issue_key(ada, "k")), Api(issue_key(person("ira", "integrator"), "k"))
    operator = Api(issue_key(person("ola", "operator"), "k"))
    rule = {"archive_days": 30, "justification": "we keep a month"}
    assert operator.post("retention/policies", rule).status_code == 403
    assert admin.post("retention/policies", {**rule, "archive_days": 0}).status_code == 422
    seen = {"headers": {"If-Match": admin.get("retention")["ETag"]}}
    made = admin.post("retention/policies", rule, **seen)
    assert made.status_code == 201
    end = f"retention/policies/{made.json()['id']}/end"
    for address, late in (("retention/policies", rule | {"archive_days": 9}), (end, {"justification": "late"})):
        assert admin.post(address, late, **seen).status_code == 412, address
    assert len(admin.get("retention").json()["policies"]) == 1
    kept = admin.post("retention/holds", {"run_id": str(run.pk), "justification": "a court"}).json()["id"]
    assert archiving.run().archived == 0
    (listed_hold,) = admin.get("retention").json()["holds"]
    assert (listed_hold["id"], listed_hold["live"] + listed_hold["archived"]) == (kept, 1)
    assert admin.post(f"retention/holds/{kept}/lift", {"justification": "over"}).status_code == 200
    assert archiving.run().archived == 1
    value = operator.get(f"runs/{run.pk}")
    assert (value.status_code, value.json()["code"]) == (410, "archived")
    assert reader.get(f"runs/{run.pk}").status_code == 404 == reader.get(f"retention/archives/{run.pk}").status_code
    assert [row["run_id"] for row in operator.get("retention/archives", agent=run.agent).json()["results"]] == [
        str(run.pk)
    ]
    assert reader.get("retention/archives").json()["results"] == []
    lines = operator.get(f"retention/archives/{run.pk}/events").json()["results"]
    assert [line["seq"] for line in lines] == list(range(1, archived(run.pk).seq + 1))
    assert "secret word" in str(lines)

    browser = Client()
    browser.force_login(ada)
    policy(archive_days=1000, delete_days=1)
    page = browser.get("/retention").content.decode()
    assert ">1 day<" in page and ">1000 days<" in page
    page = browser.get(f"/runs/{run.pk}")
    assert page.status_code == 410 and f"/archive/{run.pk}" in page.content.decode()
    for address in ("/retention", f"/archive/{run.pk}"):
        answer = browser.get(address)
        assert answer.status_code == 200 and str(run.pk) in answer.content.decode(), address
    refused = browser.post("/retention/policies", {"archive_days": "0", "justification": "<b>none</b>"})
    assert refused.status_code == 422 and "&lt;b&gt;none" in refused.content.decode()
    assert browser.post("/retention/holds", {"tag": "case-7", "justification": "a court"}).status_code == 302
    assert "It matches no run now" in browser.get("/retention").content.decode()
    assert operator.post(f"retention/archives/{run.pk}/restore", {"justification": ""}).status_code == 422
    whole = files(folder)[0].read_bytes()
    files(folder)[0].write_bytes(whole[:-1])
    assert "was altered" in browser.get(f"/archive/{run.pk}").content.decode()
    answer = browser.post(f"/archive/{run.pk}/restorations", {"justification": "needed"})
    assert answer.status_code == 409 and "Nothing was restored" in answer.content.decode()
    files(folder)[0].write_bytes(whole)
    assert operator.post(f"retention/archives/{run.pk}/restore", {"justification": "needed"}).status_code == 200
    assert picture(run.pk) == before and operator.get(f"runs/{run.pk}").status_code == 200
    assert Archive.objects.count() == 1


def test_the_command_shows_lists_and_restores(stage: Stage, tools: Toolbox) -> None:
    def said(*args: str) -> str:
        out = io.StringIO()
        call_command("retention", *args, stdout=out, stderr=out)
        return out.getvalue()

    run = ended(stage, tools, "a word")
    assert "is in force" in said("policy", "--archive-days", "30", "--reason", "a month")
    assert "due now: 1" in said("report")
    text = "1 run(s) would be archived, 0 archive(s) would be deleted, old checkpoints of 0 run(s) would be removed, "
    text += "0 problem(s)"
    assert said("run", "--dry-run") == f"archive run {run.pk}\n{text}\n"
    out = io.StringIO()
    with as_runtime():
        for args in (("run", "--dry-run"), ("run",)):
            with pytest.raises(CommandError) as refused:
                call_command("retention", *args, stdout=out, stderr=out)
            assert refused.value.returncode == 1
    why = "Nothing can be removed: this database role may not remove runs: use DURABLEAGENTS_DB_ROLE=owner"
    lines = out.getvalue().splitlines()
    assert lines[0] == f"archive run {run.pk}" and lines[2].startswith("1 run(s) would be") and not gone(run.pk)
    assert lines[1].startswith(why) and lines[3].startswith(why) and lines[4].startswith("0 run(s) archived")
    assert "1 run(s) archived" in said("run", "--limit", "5")
    assert "a word" in said("show", str(run.pk), "--payloads") and "a word" not in said("show", str(run.pk))
    assert f"restored: {run.pk}" in said("restore", str(run.pk), "--reason", "asked for")
    for args in (("show", str(run.pk)), ("restore", str(run.pk), "--reason", "again"), ("show", "x")):
        with pytest.raises(CommandError):
            said(*args)


def test_pages_and_acts_are_for_those_who_may(stage: Stage, tools: Toolbox) -> None:
    run = ended(stage, tools)
    policy()
    archiving.run()
    kept = hold(tag="x").pk
    acts = {
        "/retention/policies": {"admin"},
        "/retention/policies/404/ends": {"admin"},
        "/retention/holds": {"admin"},
        f"/retention/holds/{kept}/ends": {"admin"},
        f"/archive/{run.pk}/restorations": {"operator", "admin"},
    }
    for role in ("integrator", "operator", "auditor", "approver_finance", "admin"):
        browser = Client()
        roles = [] if role == "admin" else [role]
        browser.force_login(person(f"p_{role}", *roles, is_superuser=role == "admin", is_staff=role == "admin"))
        is_reader = role in {"operator", "auditor", "admin"}
        assert browser.get("/retention").status_code == (200 if is_reader else 403), role
        for address, may in acts.items():
            status = browser.post(address, {"justification": ""}).status_code
            assert status in ((404, 422) if role in may else (403, 404)), (role, address, status)
    assert Client().get("/retention").status_code == 302
    assert gone(run.pk)


def test_client_keys_go_after_the_days_that_are_set_and_not_before(
    stage: Stage, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_idempotencyrecord (principal, key, body_hash, status, body, created_at) "
            "SELECT 'user:1', 'k' || n, '', 201, '\"{}\"', now() - make_interval(days => 40 - n) "
            "FROM generate_series(1, 35) n ORDER BY n"
        )
    assert client_keys.duties() == () and client_keys.remove_expired() == 0
    monkeypatch.setattr(client_keys, "BATCH", 10)
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"idempotency_key_days": 9})
    (duty,) = client_keys.duties()
    with as_runtime(), connection.cursor() as cursor:
        cursor.execute(f"SELECT {duty.is_due}")
        assert cursor.fetchone()[0] and client_keys.remove_expired() == 31
        cursor.execute(f"SELECT {duty.is_due}")
        assert not cursor.fetchone()[0] and client_keys.remove_expired() == 0
    left = IdempotencyRecord.objects.values_list("key", flat=True)
    assert sorted(left) == ["k32", "k33", "k34", "k35"]
