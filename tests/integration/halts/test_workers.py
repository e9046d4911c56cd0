"""Halts and worker processes: who has confirmed, what is in flight, a worker that is stopped over a halt, a clock that
is a day off, connections that are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection

from durableagents import Context, End, ReplayClass, ToolCall, tool
from ledger.models import Event
from runs.models import Held, Process, Run
from runs.queries.halts.standing import Holding, standing
from runs.services import lifecycle
from tests.conftest import CHECKOUT, database_urls, plain_env
from tests.integration.halts.halting import calls, halt, lift
from tests.integration.limits import limited
from tests.integration.runs.hosts import working
from tests.integration.runs.stage import Stage, facts, fresh, problems
from tests.system.fleet.conftest import until
from tests.world import SHOP, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
Start = Callable[..., subprocess.Popen[bytes]]


def of(halt: object) -> Holding:
    (one,) = standing([halt.halt])  # type: ignore[attr-defined]
    return one


def test_a_halt_is_requested_until_the_worker_has_confirmed_with_what_is_in_flight(stage: Stage) -> None:
    release, began = threading.Event(), threading.Event()

    @tool(replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, timeout=60)
    def slow(args: Item, call: ToolCall) -> Item:
        began.set()
        release.wait(60)
        return args

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(slow, Item(name="a"))
        return End((await ctx.call(slow, Item(name="b"))).name)

    run = stage.start(agent_of(node, tools=[slow]))
    it = halt("tool", "order")
    assert of(it).state == "requested" and [one.says for one in of(it).hearings] == ["unheard"]
    lift(it)
    with working(stage):
        assert began.wait(60)
        it = halt("all")
        until(lambda: of(it).state == "confirmed", what="the worker's word")
        (call,) = of(it).in_flight
        assert (call.run, call.what, call.timeout) == (run.id, "tool:slow", 60.0)
        release.set()
        until(lambda: fresh(run).owner is None and not of(it).in_flight)
        assert facts(run) == ["pending", "committed"] and str(fresh(run).state) == "running"
        assert Held.objects.filter(run_id=run.id).exists() and of(it).held == 1
        lift(it)
        until(lambda: fresh(run).ended_at is not None)
    assert not Held.objects.exists() and problems(run) == []


@pytest.mark.parametrize(
    "calls",
    [
        "[{}]",
        "[5]",
        "5",
        '"x"',
        '{"a": 1}',
        '[{"run": "x", "slot": "s", "what": "w", "since": "now", "timeout": 1}]',
        f'[{{"run": "{UUID(int=1)}", "slot": "s", "what": "w", "since": "2026-01-01", "timeout": 1}}]',
        "[" * 3000 + "]" * 3000,
        f"[1{'0' * 5000}]",
    ],
    ids=range(9),
)
def test_what_can_not_be_read_of_a_worker_s_calls_is_nothing_said(stage: Stage, calls: str) -> None:
    """And takes nobody the page on which everything is halted."""
    it, worker = halt("all"), Process.objects.get()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_haltseen (line, worker, seen_at, confirmed_at, running, calls, told_at) "
            "VALUES (%s, %s, now(), now(), 0, %s::jsonb, now())",
            [it.pk, worker.pk, calls],
        )
    assert (of(it).state, [one.says for one in of(it).hearings], of(it).in_flight) == ("requested", ["unheard"], [])


def test_a_worker_that_gives_no_sign_of_life_has_not_confirmed(stage: Stage) -> None:
    it = halt("agent", "importer")
    Process.objects.update(last_heartbeat_at="2026-01-01T00:00Z")
    (one,) = of(it).unconfirmed
    assert one.says == "silent" and one.name.endswith(f"/{os.getpid()}")
    Process.objects.update(ended_at="2026-01-01T00:00Z")
    assert of(it).state == "confirmed", "one whose end is on record drives nothing"


def test_reads_and_requests_of_a_worker_stop_within_its_round(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    run = stage.start(calls(tools, *["look"] * 400))
    with working(stage):
        until(lambda: len(outside.seen("look")) > 3)
        it = halt("tool", "look")
        until(lambda: of(it).state == "confirmed")
        seen = len(outside.seen("look"))
        until(lambda: fresh(run).owner is None)
        assert len(outside.seen("look")) == seen < 400, "no read leaves once it is confirmed"
        lift(it)
        until(lambda: fresh(run).ended_at is not None)
    assert problems(run) == []


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(stage: Stage, postgres: Mapping[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts a worker process that has the limited agent, its clock off by so many seconds."""
    env = plain_env(tmp_path) | {
        "PYTHONPATH": str(CHECKOUT),
        "DJANGO_SETTINGS_MODULE": "durableagents.settings",
        "DATABASE_URL": database_urls(postgres)["runtime"],
        "DURABLEAGENTS_DATA": os.environ["DURABLEAGENTS_TEST_DATA"],
        "DURABLEAGENTS_AGENTS": limited.__name__,
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(off: int = 0, **more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.runs.skewed", str(off)]
        started.append(subprocess.Popen(command, env=env | more, cwd=CHECKOUT, stdin=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) in (0, -signal.SIGKILL)


def _start(path: Path, seconds: float = 0.05) -> Run:
    return lifecycle.start("limited@1.0.0", {"path": str(path), "seconds": seconds}, by=SHOP)


def test_a_worker_that_was_stopped_over_a_halt_sends_nothing_when_it_wakes(
    stage: Stage, worker: Start, tmp_path: Path
) -> None:
    """Between its intent and its call: it asks before it sends, and its clock is a day off."""
    armed = {"DURABLEAGENTS_FAILPOINTS": "CP2:stop:1", "DURABLEAGENTS_FAILPOINT_DIR": str(tmp_path)}
    process, path = worker(-86_400, **armed), tmp_path / "told"
    run = _start(path)
    until(lambda: _is_stopped(process.pid), what="the worker to stop at CP2")
    assert "ToolInvoked" in _kinds(run)
    it = halt("tool", "file_it")
    until(lambda: of(it).unconfirmed[0].says == "silent", what="its silence to be seen")
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: of(it).state == "confirmed" and fresh(run).owner is None)
    assert not path.exists(), "nothing left"
    lift(it)
    until(lambda: fresh(run).ended_at is not None)
    assert path.read_text().count("+") == 1 and str(fresh(run).state) == "completed" and problems(run) == []


def test_a_worker_is_killed_while_it_confirms_and_another_takes_over(
    stage: Stage, worker: Start, tmp_path: Path
) -> None:
    Process.objects.all().update(ended_at="2026-01-01T00:00Z")
    first, path = worker(), tmp_path / "told"
    run = _start(path, seconds=4.5)
    until(lambda: path.exists())
    it = halt("all")
    until(lambda: any(one.says != "unheard" for one in of(it).hearings))
    first.kill()
    worker()
    until(lambda: fresh(run).owner is None and of(it).state == "confirmed")
    assert str(fresh(run).state) == "running" and path.read_text().count("+") == 1
    lift(it)
    until(lambda: fresh(run).ended_at is not None)
    keys = {line.split()[3] for line in path.read_text().splitlines()}
    assert str(fresh(run).state) == "completed" and len(keys) == 1 and problems(run) == []


def test_connections_that_are_lost_over_a_halt_and_its_lift_lose_neither(
    stage: Stage, worker: Start, tmp_path: Path
) -> None:
    worker()
    path = tmp_path / "told"
    runs = [_start(path) for _ in range(8)]
    it = halt("all")
    _cut_all()
    until(lambda: all(fresh(run).owner is None for run in runs))
    before = Event.objects.filter(kind="ToolInvoked").count()
    _cut_all()
    assert Event.objects.filter(kind="ToolInvoked").count() == before
    lift(it)
    _cut_all()
    until(lambda: all(fresh(run).ended_at is not None for run in runs))
    assert all(str(fresh(run).state) == "completed" and problems(run) == [] for run in runs)


def _kinds(run: Run) -> list[str]:
    return list(Event.objects.filter(run_id=run.pk).values_list("kind", flat=True))


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _cut_all() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND application_name LIKE 'durableagents %%'",
            [],
        )
