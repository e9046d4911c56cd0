"""Two worker hosts and a database: one host is slowed, cut off and comes back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command

from durableagents.contrib.reports import detector
from durableagents.databases import DATABASE_NAME
from durableagents.dev import embedded
from ledger.actors import Actor
from ledger.errors import IllegalTransition
from runs.engine.agents import registry
from runs.models import Process, Run, State, Wait
from runs.services import lifecycle
from runs.services.reconciling import reconcile
from tests.system.databases import django_on, migrate
from tests.system.deploy import agents
from tests.system.deploy.network import ADDRESS, Host, Network, allow
from tests.waiting import eventually

OPERATOR = Actor(kind="user", name="olga", role="operator")
SOMEBODY = Actor(kind="user", name="olivia", role="integrator")
RUNS, PAIRS = 8, 6
TTL_SECONDS = 5


@pytest.fixture
def hosts(program: Callable[[str], str]) -> Iterator[list[Host]]:
    if os.geteuid() != 0:
        pytest.skip("not root: the test of a host that is cut off makes network namespaces. Run it as root")
    for name in ("ip", "tc", "unshare"):
        program(name)
    if subprocess.run([program("unshare"), "--net", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("this machine lets root make no network namespaces, as containers without privileges do")
    with Network("host-a", "host-b") as network:
        yield network.hosts


@pytest.fixture
def server(hosts: list[Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[embedded.Server]:
    """Return a database that listens on the bridge."""
    monkeypatch.setitem(embedded.SETTINGS, "listen_addresses", ADDRESS)
    monkeypatch.setitem(embedded.SETTINGS, "fsync", "off")
    server = embedded.Server(tmp_path / "postgres")
    server.prepare()
    allow(server.layout.pgdata)
    server.start()
    yield server
    server.stop(at_once=True)
    server.close()
    for path in (server.layout.socket_dir, server.layout.pgdata.parent):
        shutil.rmtree(path, ignore_errors=True)


class Fleet:
    """The hosts' workers and what they did."""

    def __init__(self, folder: Path, hosts: list[Host], server: embedded.Server) -> None:
        self._server, self._folder, self.effects = server, folder, folder / "effects"
        self.effects.touch()
        for host in hosts:
            with self._log(host).open("ab") as log:
                host.start(self._environment(host), log)

    def _environment(self, host: Host) -> dict[str, str]:
        data = self._folder / host.name
        data.mkdir(mode=0o700)
        shutil.copy(Path(os.environ["DURABLEAGENTS_TEST_DATA"]) / "master.key", data)
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            "DATABASE_URL": self._server.url("runtime").partition("@")[0] + f"@{ADDRESS}/{DATABASE_NAME}",
            "DURABLEAGENTS_DATA": str(data),
            "DURABLEAGENTS_AGENTS": agents.__name__,
            "DURABLEAGENTS_HOST_TTL_SECONDS": str(TTL_SECONDS),
            "EFFECTS_FILE": str(self.effects),
        }

    def _log(self, host: Host) -> Path:
        return self._folder / f"{host.name}.log"

    def log(self, host: Host) -> str:
        return self._log(host).read_text(errors="replace")

    def lines(self, kind: str = "") -> list[list[str]]:
        found = [line.split() for line in self.effects.read_text().splitlines()]
        return [line for line in found if line[0].startswith(kind)]

    def sent_by(self, host: Host) -> int:
        return sum(line[3] == host.name for line in self.lines("unsafe"))

    def workers(self, host: Host) -> list[str]:
        rows = Process.objects.filter(kind="worker", host=host.name, ended_at=None)
        return [str(each) for each in rows.values_list("pk", flat=True)]

    def driven_by(self, host: Host) -> list[str]:
        return [str(each) for each in Run.objects.filter(owner__in=self.workers(host)).values_list("pk", flat=True)]

    def events(self, *kinds: str) -> list[tuple[str, int, str, dict[str, Any]]]:
        query = """
            SELECT run_id::text, epoch, kind, convert_from(clear, 'UTF8')::jsonb
            FROM ledger_event WHERE kind = ANY(%s) ORDER BY run_id, seq"""
        return self._read(query, list(kinds))

    def journal(self, run_id: UUID) -> list[tuple[Any, ...]]:
        query = "SELECT epoch, kind, convert_from(clear, 'UTF8') FROM ledger_event WHERE run_id = %s ORDER BY seq"
        return self._read(query, run_id)

    def _read(self, query: str, parameter: Any) -> list[Any]:
        with self._server.connect("admin") as connection:
            return connection.execute(query, [parameter]).fetchall()  # type: ignore[arg-type]


@pytest.fixture
def fleet(hosts: list[Host], server: embedded.Server, tmp_path: Path, django_db_blocker: Any) -> Iterator[Fleet]:
    known = {each.graph_id for each in registry.agents()}
    registry.add(agents.agent) if agents.agent.graph_id not in known else None
    with django_db_blocker.unblock():
        migrate(server.url("owner"))
        with django_on(server.url("runtime")):
            fleet = Fleet(tmp_path, hosts, server)
            yield fleet
            for run in Run.objects.exclude(state=State.COMPLETED):
                print(run.pk, run.state, *fleet.journal(run.pk), sep="\n  ")  # noqa: T201
            for host in hosts:
                print(f"--- {host.name}\n{fleet.log(host)[-6000:]}")  # noqa: T201


def test_runs_of_a_host_that_is_cut_off_go_on_elsewhere_and_nothing_doubles(fleet: Fleet, hosts: list[Host]) -> None:
    lost, other = hosts
    eventually(lambda: fleet.workers(lost) and fleet.workers(other), "both hosts serving")
    run_ids = [str(lifecycle.start("traveller", {"pairs": PAIRS}, by=SOMEBODY).id) for _ in range(RUNS)]
    eventually(lambda: fleet.driven_by(lost) and fleet.driven_by(other), "both hosts driving runs")

    lost.slow_down()
    before = fleet.sent_by(lost)
    eventually(lambda: fleet.sent_by(lost) >= before + 4, "the slow host going on")

    # In the middle of a call that must not be repeated: its effect has happened, its answer comes too late.
    before = fleet.sent_by(lost)
    eventually(lambda: fleet.sent_by(lost) > before, "one more call")
    lost.cut_off()
    (old,), left = fleet.workers(lost), fleet.driven_by(lost)
    assert left, "the host that is cut off drives runs"
    eventually(lambda: not fleet.driven_by(lost), "other hosts knowing of the loss", TTL_SECONDS + 60)
    eventually(
        lambda: any(line[1][:36] in left and line[3] == other.name for line in fleet.lines("keyed")),
        "a run of the lost host going on elsewhere",
    )
    waiting = Run.objects.filter(pk__in=left, state=State.WAITING_HUMAN)
    eventually(lambda: waiting.exists(), "a person being asked about the call in doubt")

    lost.plug_in()
    eventually(lambda: _all_complete(fleet, run_ids), "all runs completing")
    eventually(lambda: set(fleet.workers(lost)) - {old}, "a new worker on the host that came back")
    _nothing_doubled(fleet, run_ids)
    _late_writes_were_refused(fleet, old)
    assert detector.detect() == 0, "equal answers to repeated calls are no duplicates"
    for run_id in run_ids:
        call_command("ledger", "verify", run_id)


def _all_complete(fleet: Fleet, run_ids: list[str]) -> bool:
    """Return whether all runs have completed. Calls that happened are settled by the worker that sent them; a person
    settles those whose intent was recorded when the cut kept its worker from sending them."""
    for wait in Wait.objects.filter(run__in=run_ids, kind="reconcile", resolved_at=None):
        run_id = str(wait.run_id)
        intents = [each for each in fleet.events("ToolInvoked") if each[0] == run_id and each[3]["tool"] == "send"]
        effects = [line for line in fleet.lines("unsafe") if line[1].startswith(run_id)]
        if len(intents) > len(effects):
            try:
                reconcile(wait.run_id, verdict="did_not", justification="No such line.", by=OPERATOR, wait_id=wait.pk)
            except IllegalTransition as refused:  # its worker may still be sending
                print(refused)  # noqa: T201
    return Run.objects.filter(pk__in=run_ids, state=State.COMPLETED).count() == RUNS


def _nothing_doubled(fleet: Fleet, run_ids: list[str]) -> None:
    wanted = {f"{run_id}/{pair}" for run_id in run_ids for pair in range(PAIRS)}
    assert Counter(line[1] for line in fleet.lines("unsafe")) == dict.fromkeys(wanted, 1)
    keyed = {(line[1], line[2]) for line in fleet.lines("keyed")}
    assert {name for name, _ in keyed} == wanted and len(keyed) == len(wanted), "one key for each effect, also repeated"


def _late_writes_were_refused(fleet: Fleet, old: str) -> None:
    """After its loss the old worker wrote nothing but the answers that it still held."""
    for run_id, epoch, _, lost in fleet.events("WorkerLost"):
        assert lost["worker"] == old
        later = [e for e in fleet.events("RunClaimed", "ToolCommitted", "CheckpointTaken") if e[0] == run_id]
        assert [e for e in later if e[1] > epoch], "another worker went on"
    late = fleet.events("ToolReconciled", "ToolAnsweredLate")
    assert late and {each[3]["by"] for each in late} == {f"worker:{old}"}, late
