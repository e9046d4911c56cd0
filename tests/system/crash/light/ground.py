"""The base of light schedules: a separate database, and lanes that take one seed after the other.

Payloads are encrypted, all but the smallest are kept outside the database, and what the lanes write is sealed meanwhile
and delivered to a witness, which is compared at the end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from durableagents.databases import CONNECTION_FILE
from durableagents.dev.embedded import Server
from runs.fleet.procfs import tie_to_parent
from tests.conftest import CHECKOUT, plain_env
from tests.system.crash.checker import Finding
from tests.system.crash.light.plan import draw
from tests.system.crash.steps import MODELS, PRICE
from tests.system.crash.tally import Tally

Report = Callable[[str, Tally], None]
# Payloads are small here: most are kept outside the database.
KEEPS_FROM_BYTES = 256
SEAL_SECONDS = 2.0
_CONTEXT = multiprocessing.get_context("fork")


class Ground:
    """A migrated cluster, and this process set up as part of the installation. One per process, because Django is."""

    def __init__(self, folder: Path, patience_seconds: float) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._server = Server(folder)
        self._patience_seconds = patience_seconds
        self._witness = folder.absolute() / "witness" / "seals.jsonl"
        self._sealed_at = 0.0

    def prepare(self) -> None:
        self._server.prepare()
        self._server.start()
        environment = {
            **plain_env(self._folder),
            "DURABLEAGENTS_AGENTS": "tests.system.crash.agents",
            "DURABLEAGENTS_LOG_LEVEL": "INFO",
            "DURABLEAGENTS_LARGE_VALUES": str(self._folder.absolute() / "values"),
            "DURABLEAGENTS_SEAL_WITNESSES": f"file://{self._witness}",
        }
        for name in [name for name in os.environ if name.startswith("DURABLEAGENTS_") or name.startswith("DATABASE_")]:
            del os.environ[name]
        os.environ.update(environment, DJANGO_SETTINGS_MODULE="durableagents.settings")
        self._witness.parent.mkdir()
        (self._folder / "values").mkdir()
        owner = {**os.environ, "DURABLEAGENTS_DB_ROLE": "owner"}
        for command in (["large_values", "prepare"], ["migrate", "--noinput", "--verbosity=0"]):
            subprocess.run([sys.executable, "manage.py", *command], cwd=CHECKOUT, env=owner, check=True)
        import django

        django.setup()
        from durableagents.contrib.large_values.stores import Folder

        Folder.keeps_from = KEEPS_FROM_BYTES
        _put_people()
        _put_price()

    def perform(self, seeds: Sequence[str], lanes: int, report: Report) -> None:
        left: Iterator[str] = iter(seeds)
        # Loaded objects are shared with every lane and worker; the collector must not touch (and so copy) them.
        gc.collect()
        gc.freeze()
        running = [self._open_lane(n) for n in range(min(lanes, len(seeds)))]
        links = {link: process for process, link in running}
        try:
            while links:
                for link in wait(list(links), 0.05):
                    assert isinstance(link, Connection)
                    try:
                        heard = link.recv()
                    except EOFError:
                        raise RuntimeError(f"a lane ended by itself; its log is in {self._folder}") from None
                    if heard is not None:
                        report(*heard)
                    seed = next(left, None)
                    link.send(seed)
                    if seed is None:
                        links.pop(link).join()  # type: ignore[arg-type]
                self._keep_database()
                self._seal()
            report("seals", self._check_seals())
        finally:
            for process in links.values():
                process.terminate()
                process.join()

    def _seal(self) -> None:
        """Seal and deliver what the lanes have written, unless the database is just restarting."""
        from django.conf import settings
        from django.db import InterfaceError, OperationalError, connection

        from durableagents.contrib.seals import sealing, witnesses

        if time.monotonic() - self._sealed_at < SEAL_SECONDS:
            return
        try:
            sealing.seal_all()
            for witness in settings.DURABLEAGENTS.seal_witnesses:
                witnesses.deliver(witness)
        except (OperationalError, InterfaceError):
            connection.close()
        self._sealed_at = time.monotonic()

    def _check_seals(self) -> Tally:
        """Compare the database and the witness's copy with what was sealed while processes were killed."""
        from durableagents.contrib.seals.models import Seal
        from durableagents.contrib.seals.verification import check_database, check_witness
        from tests.system.crash.light.lane import patiently

        self._sealed_at = 0.0
        patiently(self._seal)
        found = [Finding("broken", "-", str(each)) for each in (*check_database(), *check_witness(self._witness))]
        if not Seal.objects.exists():
            found.append(Finding("broken", "-", "nothing was sealed"))
        if not any(path.is_file() for path in (self._folder / "values").glob("*/**/*")):
            found.append(Finding("broken", "-", "no value was kept outside the database"))
        return Tally(findings=found, failed_seeds=["seals"] if found else [])

    def _keep_database(self) -> None:
        assert self._server.process is not None
        if self._server.process.poll() is not None:
            self._server.start()

    def _open_lane(self, number: int) -> tuple[Any, Connection]:
        ours, theirs = _CONTEXT.Pipe()
        folder = self._folder / f"lane-{number}"
        folder.mkdir()
        given = (os.getpid(), number, folder, self._folder, self._server.layout.pgdata, self._patience_seconds, theirs)
        process = _CONTEXT.Process(target=_lane, args=given, name=f"lane {number}")
        process.start()
        theirs.close()
        return process, ours

    def close(self) -> None:
        self._server.stop(patience_seconds=2)
        self._server.close()


def _put_people() -> None:
    from tests.system.crash.light.granting import put_bounds
    from tests.system.crash.light.votes import put_people

    put_people()
    put_bounds()


def _put_price() -> None:
    from django.db import connection

    from runs.services.budgets import prices

    for model in MODELS:
        prices.add_price(model, usd_micro_in=PRICE[0], usd_micro_out=PRICE[1], by="user:schedule")
    connection.close()  # lanes can't share it


def _lane(
    parent: int, number: int, folder: Path, data: Path, pgdata: Path, patience_seconds: float, link: Connection
) -> None:
    from tests.system.crash.light.lane import Lane
    from tests.system.crash.light.letterbox import Letterbox
    from tests.system.crash.light.outside import Outside

    # The parent ends the lanes; an inherited handler could raise unnoticed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tie_to_parent(parent)
    outside, letterbox = Outside(folder, pgdata / "postmaster.pid"), Letterbox()
    try:
        _settle_in(number, folder, outside.environment | {"DURABLEAGENTS_BASE_URL": letterbox.url})
        outside.start()
        outside.no_faults()
        asyncio.run(_warm_up(outside))
        lane = Lane("", folder / "points", _address(data), outside, letterbox, patience_seconds)
        _take_graph(lane, number, 0)
        link.send(None)
        failures = 0
        while (seed := link.recv()) is not None:
            tally = _perform(lane, seed)
            if tally.failed_seeds:
                failures += 1
                _take_graph(lane, number, failures)  # the next schedule must not find its leftovers
            link.send((seed, tally))
    finally:
        outside.close()


async def _warm_up(outside: Any) -> None:
    """Do once what every worker would do first: imports at first use, keys, certificates, fingerprints."""
    import httpx
    from psycopg import AsyncConnection
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    from durableagents.demo import upstream
    from runs.connections import dsn
    from runs.engine.assistants import responses
    from runs.engine.thinking.request import request_model
    from runs.journal.digests import hasher
    from tests.system.crash.agents import OTHERS, agent, thinker

    responses(), hasher(), upstream._tls()
    for each in (agent, *OTHERS):
        each.fingerprint()
    await request_model(thinker, [ModelRequest(parts=[UserPromptPart("Do it.")])])
    async with (
        await AsyncConnection.connect(dsn()) as link,
        httpx.AsyncClient(verify=upstream._tls(), trust_env=False) as client,
    ):
        await link.execute("SELECT 1")
        await client.get(f"http://127.0.0.1:{outside.port}/healthz")
    gc.collect()
    gc.freeze()


def _perform(lane: Any, seed: str) -> Tally:
    from tests.system.crash.light.lane import Performance

    began = time.monotonic()
    logging.getLogger("crash").info("schedule %s", seed)
    try:
        return Performance(lane, draw(seed)).perform()
    except Exception:
        trouble = f"after {time.monotonic() - began:.1f} s: {traceback.format_exc()}"
        return Tally(1, findings=[Finding("stuck", "-", trouble)], failed_seeds=[seed])


def _settle_in(number: int, folder: Path, environment: dict[str, str]) -> None:
    """Make a forked process a lane: its own ports, crash points and log, without its parent's connections."""
    from django.conf import settings
    from django.db import connections

    from durableagents import env
    from runs import failpoints
    from runs.journal import committer

    (folder / "points").mkdir()
    os.environ.update(environment, DURABLEAGENTS_FAILPOINT_DIR=str(folder / "points"))
    settings.DURABLEAGENTS = env.load()
    failpoints._armoury.cache_clear()
    committer.SHARES = 1  # a lane has at most two or three runs, which would otherwise hardly ever share a batch
    connections.close_all()
    log = os.open(folder / "lane.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, sys.stderr.fileno())


def _take_graph(lane: Any, number: int, n: int) -> None:
    """Give the crash agents a version that only this lane knows, so that its workers claim its runs alone."""
    from runs.engine.agents import registry
    from tests.system.crash.agents import OTHERS, agent, ramped, ramped_2, twin_of

    for graph_id in registry.graph_ids():
        registry.remove(graph_id)
    for each in (agent, *OTHERS):
        each.version = f"{2 if each is ramped_2 else 1}.{number}.{n}"
    for each in (ramped, ramped_2):
        each.name = f"crash-ramped-{number}-{n}"
    twin = twin_of(agent, f"3.{number}.{n}")
    for each in (agent, twin, *OTHERS):
        registry.add(each)
    lane.twins = agent.graph_id, twin.graph_id
    lane.graph_id, lane.ramped = agent.graph_id, (ramped.name, (ramped.version, ramped_2.version))


def _address(data: Path) -> str:
    import json

    from psycopg.conninfo import make_conninfo

    known = json.loads((data / CONNECTION_FILE).read_text())
    return make_conninfo(host=known["host"], port=known["port"], dbname=known["dbname"], **known["runtime"])
