"""Behind a pooler in transaction mode everything works, with DATABASE_DIRECT_URL; without it nothing starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from durableagents.identity.auth import issue_key
from ledger.web.roles import ROLES
from runs.journal import pooler
from tests.conftest import CHECKOUT, free_ports, plain_env
from tests.system.databases import database, django_on, migrate
from tests.system.infra.installation import assert_refused
from tests.system.pooler.conftest import LIMITS, Pooler, limit
from tests.waiting import eventually

pytestmark = pytest.mark.django_db
# A process needs the key that its database was used with: the tests' own.
ONE_KEY = Path(os.environ["DURABLEAGENTS_TEST_DATA"])
Manage = Callable[..., subprocess.CompletedProcess[str]]


class Story:
    """Web and worker of an installation whose DATABASE_URL is a pooler, and a client to it."""

    def __init__(self, urls: Mapping[str, str], folder: Path, keys: Mapping[str, str], session: str) -> None:
        self.folder, self.keys, self.session = folder, keys, session
        port, sandbox, smtp = (str(each) for each in free_ports(3))
        self.env = plain_env(ONE_KEY) | {
            "DATABASE_URL": urls["pooled"],
            "DATABASE_DIRECT_URL": urls["runtime"],
            "DURABLEAGENTS_AGENTS": "tests.system.pooler.agents",
            "PYTHONPATH": str(CHECKOUT),
            "DURABLEAGENTS_SECRET_KEY": settings.SECRET_KEY,
            "POOLER_STORY": str(folder),
            "DURABLEAGENTS_RESTORE_HEAD": str(folder / "restore.head"),
            "DURABLEAGENTS_WORKERS": "2",
            "PORT": port,
            "SANDBOX_PORT": sandbox,
            "SANDBOX_SMTP_PORT": smtp,
        }
        self.processes = {name: self._start(name) for name in ("web", "worker")}
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        eventually(self._is_ready, "ready behind a pooler", 90)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "manage.py", name]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(argv, cwd=CHECKOUT, env=self.env, stdout=log, stderr=log, start_new_session=True)

    def _is_ready(self) -> bool:
        for name, process in self.processes.items():
            assert process.poll() is None, (self.folder / f"{name}.log").read_text()
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(30)

    def logs(self) -> str:
        return "".join((self.folder / f"{name}.log").read_text() for name in self.processes)

    # --- people ---

    def get(self, path: str) -> Any:
        answer = self.client.get(path, headers=self.of("starter") if path.startswith("/api") else {})
        assert answer.status_code == 200, (path, answer.text[:500])
        return answer.json() if path.startswith("/api") else answer.text

    def of(self, name: str, **more: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[name]}", **more}

    def post(self, path: str, body: Any, by: str = "starter") -> Any:
        answer = self.client.post(path, json=body, headers=self.of(by))
        assert answer.is_success, (path, answer.text[:500])
        return answer.json()

    def start(self, what: str, amount: int = 1) -> str:
        started: str = self.post("/api/v1/runs", {"agent": "pooled", "input": {"what": what, "amount": amount}})["id"]
        return started

    def until(self, run: str, state: str) -> Any:
        def there() -> Any:
            found = self.get(f"/api/v1/runs/{run}")
            return found if found["state"] == state else None

        return eventually(there, f"{run} {state}", 60)

    def seen(self, run: str) -> list[dict[str, Any]]:
        place = self.folder / "seen.jsonl"
        lines = place.read_text().splitlines() if place.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["run"] == run]


@pytest.fixture(scope="module")
def story(behind: dict[str, str], tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Story]:
    keys = {}
    with django_db_blocker.unblock(), django_on(behind["runtime"]):
        for name in ("starter", "decider"):  # nobody decides their own requests
            user = User.objects.create(username=name)
            user.groups.set(Group.objects.filter(name__in=ROLES))
            keys[name] = issue_key(user, name)
        browser = Client()
        browser.force_login(user)
        (session,) = (morsel.value for morsel in browser.cookies.values())
    story = Story(behind, tmp_path_factory.mktemp("pooler"), keys, session)
    yield story
    story.stop()
    assert "Traceback" not in story.logs()


def test_the_pooler_moves_a_session_from_one_server_connection_to_another(behind: dict[str, str]) -> None:
    """Otherwise the tests below would prove nothing."""
    pooled = behind["pooled"]
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as one, psycopg.connect(pooled) as other:
        other.execute("SELECT 1")
        pids = {one.execute("SELECT pg_backend_pid()").fetchone()}
        other.rollback()
        pids |= {one.execute("SELECT pg_backend_pid()").fetchone() for _ in range(10)}
    assert len(pids) > 1


def test_a_gate_is_decided_and_the_run_completes(story: Story) -> None:
    run = story.start("desk", amount=5000)
    story.until(run, "waiting_human")
    (approval,) = story.get(f"/api/v1/approvals?state=open&run_id={run}")["results"]
    plan = story.get(f"/api/v1/approvals/{approval['id']}")["plan_hash"]
    decision = {"verdict": "approve", "plan_hash": plan, "justification": "as quoted"}
    story.post(f"/api/v1/approvals/{approval['id']}/decision", decision, by="decider")
    assert story.until(run, "completed")["output"] == {"ref": "filed desk"}
    assert len(story.seen(run)) == 1


def test_a_timer_rings(story: Story) -> None:
    run = story.start("timer")
    assert story.until(run, "completed")["output"] == {"ref": "slept"}


def test_a_callback_wakes_its_run(story: Story) -> None:
    run = story.start("form")
    (question,) = eventually(lambda: story.seen(run), "the request")
    assert story.client.post(question["url"], json={"ref": "W-9"}).is_success
    assert story.until(run, "completed")["output"] == {"ref": "W-9"}


def test_a_killed_worker_s_call_is_repeated_under_the_same_key(story: Story) -> None:
    run = story.start("slow")
    (first,) = eventually(lambda: story.seen(run), "the call")
    os.kill(first["pid"], signal.SIGKILL)
    (story.folder / "go").touch()
    assert story.until(run, "completed")["output"] == {"ref": "filed slow"}
    calls = story.seen(run)
    assert len(calls) == 2 and len({call["key"] for call in calls}) == 1 and calls[0]["pid"] != calls[1]["pid"]


def test_keys_and_lists_and_pages_are_answered(story: Story) -> None:
    body = {"agent": "pooled", "input": {"what": "timer"}}
    keyed = [
        story.client.post("/api/v1/runs", json=body, headers=story.of("starter") | {"Idempotency-Key": "k-1"})
        for _ in range(2)
    ]
    assert keyed[0].content == keyed[1].content
    run = keyed[0].json()["id"]
    story.until(run, "completed")
    for path in (
        f"/api/v1/runs/{run}/events",
        f"/api/v1/runs/{run}/ledger",
        "/api/v1/runs",
        "/api/v1/fleet",
        "/api/v1/incidents",
    ):
        assert story.get(path)["results"] is not None


def test_the_run_s_page_and_its_verification_are_shown(story: Story) -> None:
    run = story.start("timer")
    story.until(run, "completed")
    story.client.cookies.set(f"durableagents_session_{story.env['PORT']}", story.session)
    for path in (f"/runs/{run}", f"/runs/{run}/verification", "/", "/inbox", "/runs", "/fleet", "/audit"):
        assert run in story.get(path) or not path.startswith(f"/runs/{run}")


# --- wrong configurations -----------------------------------------------------------------------


def environment(database_url: str, **more: str) -> dict[str, str]:
    web, sandbox, smtp = (str(port) for port in free_ports(3))
    return {
        "DATABASE_URL": database_url,
        "DURABLEAGENTS_DATA": str(ONE_KEY),
        "PORT": web,
        "SANDBOX_PORT": sandbox,
        "SANDBOX_SMTP_PORT": smtp,
        **more,
    }


@pytest.mark.parametrize("command", ["web", "worker"])
def test_a_pooler_without_the_direct_address_is_refused(behind: dict[str, str], manage: Manage, command: str) -> None:
    assert_refused(manage(command, env=environment(behind["pooled"])), "set DATABASE_DIRECT_URL")


@pytest.mark.parametrize("command", ["web", "worker"])
def test_a_direct_address_that_is_the_pooler_s_is_refused(behind: dict[str, str], manage: Manage, command: str) -> None:
    done = manage(command, env=environment(behind["pooled"], DATABASE_DIRECT_URL=behind["pooled"]))
    assert_refused(done, "DATABASE_DIRECT_URL points to a pooler")


@pytest.mark.parametrize("more", ["", "server_round_robin = 0"], ids=["in turn", "the last one first"])
def test_a_pooler_that_takes_every_parameter_is_told_by_what_it_does(
    pgbouncer: str, behind: dict[str, str], manage: Manage, more: str
) -> None:
    with Pooler(pgbouncer, behind["runtime"], more=f"ignore_startup_parameters = options\n{more}") as lax:
        assert_refused(manage("worker", env=environment(lax.url)), "DATABASE_URL points to a pooler")
        both = environment(lax.url, DATABASE_DIRECT_URL=lax.url)
        assert_refused(manage("worker", env=both), "DATABASE_DIRECT_URL points to a pooler")


def test_a_pooler_that_hands_out_whole_sessions_is_no_pooler(
    pgbouncer: str, behind: dict[str, str], django_db_blocker: Any
) -> None:
    sessions = "ignore_startup_parameters = options\npool_mode = session"
    with django_db_blocker.unblock(), Pooler(pgbouncer, behind["runtime"], more=sessions) as lax, django_on(lax.url):
        assert pooler.refusal() is None


def test_two_addresses_of_two_databases_are_refused(
    behind: dict[str, str], postgres: Mapping[str, str], manage: Manage
) -> None:
    with database(postgres) as other:
        done = manage("worker", env=environment(behind["pooled"], DATABASE_DIRECT_URL=other["runtime"]))
    assert_refused(done, "point to different databases")


def test_a_role_without_limits_is_refused_behind_a_pooler(
    pgbouncer: str, postgres: Mapping[str, str], manage: Manage, django_db_setup: None, django_db_blocker: Any
) -> None:
    with django_db_blocker.unblock(), database(postgres) as urls:
        migrate(urls["owner"])
        limit(urls, LIMITS | {"idle_in_transaction_session_timeout": "0"})
        with Pooler(pgbouncer, urls["runtime"]) as found:
            done = manage("worker", env=environment(found.url, DATABASE_DIRECT_URL=urls["runtime"]))
    assert_refused(done, "idle_in_transaction_session_timeout", "ALTER ROLE")
