"""A run keeps its version: only a worker with it drives the run, and if none has it, people see that."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents import Context, End
from durableagents.identity.auth import issue_key
from ledger import events as e
from runs import log_messages
from runs.engine.agents import Agent, registry
from runs.engine.fingerprint import first_scheme, second_scheme
from runs.engine.fingerprint.schemes import second_parts
from runs.fleet import agent_versions, version_changes
from runs.fleet.agent_versions import VersionChanged, Watch
from runs.models import AgentVersion, Process, Run, Served
from runs.services import lifecycle
from tests.integration.runs.stage import Stage, announce, at_once, events, fresh, kinds, now
from tests.world import SHOP, Notes, Outside, Toolbox, agent_of, ends_with


@pytest.fixture
def production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DURABLEAGENTS", settings.DURABLEAGENTS.model_copy(update={"stage": "production"}))


@pytest.fixture
def operator(stage: Stage) -> Client:
    user = User.objects.create_user("versions-operator", password="a long enough one")
    user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    client = Client(headers={"Authorization": f"Bearer {issue_key(user, 'test')}"})
    client.force_login(user)
    return client


def changed(agent: Agent) -> Agent:
    async def another(state: Notes, ctx: Context) -> End:
        return End("something else")

    return agent_of(another, name=agent.name, version=agent.version)


# --- which worker drives what ---


def test_between_two_workers_of_which_one_has_the_version_that_one_drives_every_run(stage: Stage) -> None:
    old, new = agent_of(ends_with("old"), name="skew"), agent_of(ends_with("new"), name="skew", version="2.0.0")
    both, behind = stage.hire(), stage.hire()
    runs = [lifecycle.start(agent.graph_id, {}, by=SHOP) for agent in (old, new) * 5]
    claimed = {both.id: [], behind.id: []}  # type: ignore[var-annotated]
    for _ in range(12):
        for worker, graphs in ((behind, [old.graph_id]), (both, [old.graph_id, new.graph_id])):
            for one in stage.claim(worker, graphs=graphs):
                claimed[worker.id].append(one.graph_id)
                assert stage.drive_claimed(one, worker) == "completed"
    assert set(claimed[behind.id]) == {old.graph_id} and claimed[both.id].count(new.graph_id) == 5
    assert {str(fresh(run).state) for run in runs} == {"completed"}
    assert {len(events(run, e.RunClaimed)) for run in runs} == {1}


# --- messages to people ---


def test_missing_version_is_named_everywhere(stage: Stage, operator: Client, caplog: pytest.LogCaptureFixture) -> None:
    here, elsewhere = agent_of(ends_with(1)), agent_of(ends_with(2), name="vendor-like", version="2.0.0")
    run, other = stage.start(elsewhere), stage.start(here)
    registry.remove(elsewhere.graph_id)
    announce(stage, stage.worker)
    sentence = "no running worker has vendor-like@2.0.0"
    assert agent_versions.unserved() == ["vendor-like@2.0.0"]
    assert operator.get(f"/api/v1/runs/{run.id}").json()["status"]["sentence"].endswith(f", but {sentence}.")
    assert operator.get(f"/api/v1/runs/{other.id}").json()["status"]["reason"] == "queued"
    assert operator.get("/readyz").json()["unserved_versions"] == 1
    assert sentence in operator.get(f"/runs/{run.id}").content.decode()
    assert sentence not in operator.get(f"/runs/{other.id}").content.decode()
    for page in ("/agents", "/fleet"):
        text = operator.get(page).content.decode()
        assert "No running worker has" in text and "vendor-like@2.0.0" in text, page
    watch = Watch()
    with caplog.at_level(logging.INFO, "runs.fleet.agent_versions"):
        for _ in range(3):
            watch.check()
        assert [r.getMessage() for r in caplog.records].count(log_messages.VERSION_UNSERVED % "vendor-like@2.0.0") == 1
        registry.add(elsewhere)
        announce(stage, stage.hire())
        watch.check()
    assert "don't lack a worker any more" in caplog.records[-1].getMessage()
    assert operator.get("/readyz").json()["unserved_versions"] == 0


def test_where_no_worker_lives_that_is_what_is_said(stage: Stage, operator: Client) -> None:
    run = stage.start(agent_of(ends_with(1)))
    announce(stage, stage.worker)
    Process.objects.update(ended_at=now())
    assert operator.get(f"/api/v1/runs/{run.id}").json()["status"]["reason"] == "no_worker"
    assert "no worker is running" in operator.get(f"/runs/{run.id}").content.decode()


# --- a version never changes in place ---


def test_the_first_use_is_remembered_once_and_wins(stage: Stage) -> None:
    agent = agent_of(ends_with(1))
    announce(stage, stage.worker)
    stage.start(agent)
    changed(agent)
    announce(stage, stage.hire())
    (stored,) = AgentVersion.objects.filter(graph_id=agent.graph_id)
    assert stored.fingerprint == agent.fingerprint() and stored.parts == agent.parts()


def test_in_production_changed_code_is_quarantined_where_it_is(
    stage: Stage, production: None, operator: Client, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of(ends_with(1))
    announce(stage, stage.worker)
    run = stage.start(agent)
    assert agent.graph_id in registry.graph_ids()
    changed(agent)
    with caplog.at_level(logging.WARNING, "runs.fleet.agent_versions"):
        announce(stage, stage.hire())
    assert [r.levelname for r in caplog.records if agent.graph_id in r.getMessage()] == ["ERROR"]
    assert agent.graph_id not in registry.graph_ids() and registry.find(agent.graph_id)
    assert stage.drive() == "idle" and kinds(run) == ["RunCreated"]
    with pytest.raises(VersionChanged) as refused:
        lifecycle.start(agent.graph_id, {}, by=SHOP)
    assert refused.value.status == 409 and Run.objects.count() == 1
    Served.objects.filter(worker=stage.worker.id).delete()  # the worker with the right code has gone
    assert agent_versions.unserved() == [agent.graph_id]
    assert "quarantined" in operator.get("/agents").content.decode()


def test_in_development_changed_code_is_warned_of_and_goes_on(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    agent = agent_of(ends_with(1))
    announce(stage, stage.worker)
    changed(agent)
    with caplog.at_level(logging.WARNING, "runs.fleet.agent_versions"):
        announce(stage, stage.hire())
    assert [r.levelname for r in caplog.records if agent.graph_id in r.getMessage()] == ["WARNING"]
    stage.start(agent)
    assert stage.drive() == "completed"


def stored_by_older_code(agent: Agent) -> None:
    """Record the version as before fingerprints had schemes."""
    AgentVersion.objects.update_or_create(
        graph_id=agent.graph_id,
        defaults={"fingerprint": first_scheme(agent), "parts": {"prompts": {}}, "first_used_at": now()},
    )


def test_upgrade_adopts_fingerprints_once(stage: Stage, production: None, caplog: pytest.LogCaptureFixture) -> None:
    agent = agent_of(ends_with(1))
    stored_by_older_code(agent)
    with caplog.at_level(logging.WARNING, "runs.fleet.agent_versions"):
        announce(stage, stage.worker)
        announce(stage, stage.hire())
        lifecycle.start(agent.graph_id, {}, by=SHOP)
    assert [r.getMessage() for r in caplog.records if agent.graph_id in r.getMessage()] == [
        log_messages.VERSION_ADOPTED % agent.graph_id
    ]
    assert AgentVersion.objects.get(graph_id=agent.graph_id).fingerprint == agent.fingerprint()
    assert AgentVersion.objects.get(graph_id=agent.graph_id).parts == agent.parts()
    assert stage.drive() == "completed"


def test_a_start_takes_over_an_older_fingerprint_too(stage: Stage, production: None) -> None:
    agent = agent_of(ends_with(1))
    stored_by_older_code(agent)
    answers = at_once(*(lambda: lifecycle.start(agent.graph_id, {}, by=SHOP) for _ in range(8)))
    assert [a for a in answers if isinstance(a, Exception)] == []
    assert AgentVersion.objects.get(graph_id=agent.graph_id).fingerprint == agent.fingerprint()


def test_an_upgrade_is_no_way_to_slip_changed_code_in(stage: Stage, production: None) -> None:
    agent = agent_of(ends_with(1))
    stored_by_older_code(agent)
    changed(agent)
    announce(stage, stage.worker)
    assert agent.graph_id not in registry.graph_ids()
    with pytest.raises(VersionChanged):
        lifecycle.start(agent.graph_id, {}, by=SHOP)


def test_dropped_gate_is_quarantined(stage: Stage, production: None, caplog: pytest.LogCaptureFixture) -> None:
    gated = Toolbox(Outside())
    agent = agent_of(ends_with(1), tools=[gated.pay], name="gated")
    announce(stage, stage.worker)
    agent_of(ends_with(1), tools=[replace(gated.pay, gate=None)], name="gated")
    with caplog.at_level(logging.ERROR, "runs.fleet.agent_versions"):
        announce(stage, stage.hire())
    assert agent.graph_id not in registry.graph_ids()
    assert "gated@1.0.0: pay: gate dropped; bump to 1.0.1 (" in caplog.records[-1].getMessage()


def test_first_process_wins_where_the_old_scheme_saw_one(stage: Stage, production: None, tmp_path: Any) -> None:
    """The old scheme ignored other modules. The first process after the upgrade defines the version."""
    from tests.integration.runs import desk

    try:
        one = desk.loaded(desk.written(tmp_path / "one"))
        desk.forget()
        other = desk.loaded(desk.written(tmp_path / "other", "a helper of the package"))
        assert second_scheme(one) == second_scheme(other) and one.fingerprint() != other.fingerprint()
        AgentVersion.objects.create(
            graph_id=one.graph_id, fingerprint=second_scheme(one), parts=second_parts(one), first_used_at=now()
        )
        users = [one, other] * 8
        answers = at_once(*(lambda agent=agent: agent_versions.note_use(agent) for agent in users))
    finally:
        desk.forget()
    stored = AgentVersion.objects.get(graph_id=one.graph_id)
    winner = one if stored.fingerprint == one.fingerprint() else other
    assert stored.fingerprint == winner.fingerprint() and stored.parts == winner.parts()
    for agent, answer in zip(users, answers, strict=True):
        assert (answer is None) == (agent is winner), answer
        if agent is not winner:
            assert isinstance(answer, VersionChanged) and "helper fee() in desk/rules.py" in answer.detail


def test_web_says_at_its_start_what_it_will_refuse_and_stands_an_outage(
    stage: Stage, production: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(ends_with(1), name="told")
    stage.start(agent)
    changed(agent)
    with caplog.at_level(logging.WARNING, "runs.fleet.agent_versions"):
        version_changes.say_changes()
        assert [r.levelname for r in caplog.records] == ["ERROR"]
        assert "told@1.0.0: node another: new; node finish: gone" in caplog.records[0].getMessage()
        monkeypatch.setattr(version_changes, "_STORED", "SELECT no_such FROM nowhere WHERE graph_id = ANY(%s)")
        version_changes.say_changes()
    assert "can't be read" in caplog.records[-1].getMessage()
