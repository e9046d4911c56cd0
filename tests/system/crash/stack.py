"""A real installation to crash: `manage.py up` on its own data and ports, with crash points armed while it runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.conninfo import make_conninfo

from durableagents.databases import CONNECTION_FILE
from ledger import chain
from tests.conftest import CHECKOUT
from tests.system.crash.api import ANOTHER, ENDED, Api
from tests.system.crash.checker import Expected, Facts, Finding, Link, judge, moment
from tests.system.crash.moved import row_of
from tests.system.crash.steps import EFFECTS, FAMILIES, GATED, GATHERED, MODELS, PRICE, UNDONE
from tests.system.crash.truth import has_happened
from tests.system.infra.installation import Installation
from tests.waiting import eventually, pause

AGENT = "crash-test"
DECIDER = "approver_finance"
# By tool: what a person knows of an effect that did happen. The others take an empty object.
RECEIPTS = {"send_welcome": "seen in the inbox"}

# Sets prices and prints a key of a second person with a role, for what takes two.
_PREPARED = """
from django.contrib.auth.models import Group, User
from django.db.models.functions import Now
from durableagents.identity.auth import issue_key
from runs.models import Price
for model, usd_in, usd_out in {models}:
    said = {{"valid_from": Now(), "set_at": Now(), "set_by": "user:schedule"}}
    Price.objects.create(model=model, usd_micro_in=usd_in, usd_micro_out=usd_out, **said)
user = User.objects.create_user("second_{role}")
user.groups.add(Group.objects.get(name="{role}"))
print(issue_key(user, "crash"))
"""


class Stack(Installation):
    """An installation with `workers` worker processes and the crash-test agent, and ways to break it."""

    def __init__(
        self, folder: Path, *, workers: int = 2, slots: int = 50, agents: str = "tests.system.crash.agents"
    ) -> None:
        super().__init__(folder / "data")
        # Above any fault's latency: by then a mail under way has arrived, or never will.
        self.settling_seconds = 0.3
        self.points = folder / "points"
        self.points.mkdir(parents=True, exist_ok=True)
        self._said = folder / "up.log"
        self._workers, self._slots, self._agents = workers, slots, agents
        self._api: Api | None = None
        self._another: dict[str, str] = {}  # keys of further people with a role
        self._armed: list[str] = []

    def environment(self, **extra: str) -> dict[str, str]:
        ours = {
            "DURABLEAGENTS_WORKERS": str(self._workers),
            "DURABLEAGENTS_SLOTS": str(self._slots),
            "DURABLEAGENTS_AGENTS": self._agents,
            "DURABLEAGENTS_FAILPOINT_DIR": str(self.points),
        }
        return super().environment(**ours, **extra)

    def up(self, **extra: str) -> subprocess.Popen[str]:
        """Start `up` with its output in a file: nobody reads a pipe for hours."""
        with self._said.open("ab") as answer:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=CHECKOUT,
                env=self.environment(**extra),
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        return self.process

    def output(self) -> str:
        return self._said.read_text()

    def start(self) -> Stack:
        """Start and wait until all workers serve; let W-9 forms arrive at once."""
        self.up_and_ready()
        self._api = Api(self.demo())
        self.all_workers()
        self.let_callbacks_go()
        shell = self.shell(_PREPARED.format(role=DECIDER, models=[(model, *PRICE) for model in MODELS]))
        self._another = {f"{DECIDER}{ANOTHER}": shell.split()[-1]}
        return self

    def demo(self) -> dict[str, Any]:
        found = super().demo()
        return found | {"api_keys": found["api_keys"] | self._another}

    def kill_up_and_start_again(self) -> None:
        """SIGKILL `up` itself: its children end with it, and the next start continues."""
        assert self.process is not None
        self.remember()
        self.process.kill()
        self.process.wait()
        self.up_and_ready()

    def drain_and_start_again(self) -> None:
        """Stop with Ctrl-C and start again, as a deployment does."""
        code, _ = self.stop()
        assert code == 0, self.output()
        self.up_and_ready()

    @property
    def api(self) -> Api:
        assert self._api is not None
        return self._api

    def end(self) -> None:
        if self._api is not None:
            self._api.close()
        self.clean()

    # --- crash points -------------------------------------------------------------------------------------------------

    def arm(self, *points: str) -> None:
        """Arm only these points in every worker process. The file appears whole, so none reads a part of it."""
        self._armed = list(points)
        draft = self.points / "armed.draft"
        draft.write_text("\n".join(points))
        draft.replace(self.points / "armed")

    def acted(self) -> list[str]:
        from runs.failpoints import marker_name

        names = [marker_name(point, self._armed[:i].count(point)) for i, point in enumerate(self._armed)]
        return [point for point, name in zip(self._armed, names, strict=True) if (self.points / name).exists()]

    def disarm(self) -> None:
        self.arm()
        for marker in [*self.points.glob("CP*"), *self.points.glob("then_*")]:
            marker.unlink()

    # --- the portal -------------------------------------------------------------------------------

    def hold_callbacks(self) -> None:
        self.api.faults(system="portal", w9_delay_seconds=86_400)

    def let_callbacks_go(self) -> None:
        self.api.faults(system="portal", w9_delay_seconds=0)

    # --- processes ----------------------------------------------------------------------------------------------------

    def pids(self, *kinds: str) -> list[int]:
        return [row["pid"] for row in self.api.fleet() if row["kind"] in kinds]

    def all_workers(self, count: int = 0) -> list[int]:
        wanted = count or self._workers
        return eventually(lambda: len(found := self.pids("worker")) >= wanted and found, f"{wanted} workers serving")

    def logged(self, part: str) -> str:
        """Return the log of web, sandbox, supervisor (with all workers) or postgres."""
        return (self.data / "logs" / f"{part}.log").read_text(errors="replace")

    # --- the database -------------------------------------------------------------------------------------------------

    def database(self, role: str = "runtime") -> psycopg.Connection[Any]:
        """Connect as one of the roles, waiting for a server that is starting."""
        known = json.loads((self.data / CONNECTION_FILE).read_text())
        place = {name: known[name] for name in ("host", "port", "dbname")}
        address = make_conninfo(**place, **known[role], connect_timeout=5, application_name="crash test")

        def connected() -> psycopg.Connection[Any] | None:
            try:
                return psycopg.connect(address, autocommit=True)
            except psycopg.OperationalError:
                return None

        found: psycopg.Connection[Any] = eventually(connected, "a connection to the database")
        return found

    def links(self, run_id: str) -> list[Link]:
        query = "SELECT seq, epoch, at, clear, sealed, prev_hash, hash FROM ledger_event WHERE run_id = %s ORDER BY seq"
        with self.database() as connection:
            return [Link(*row) for row in connection.execute(query, [run_id]).fetchall()]

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run(
        self, *steps: str, sleep_seconds: float = 0.05, budget: Mapping[str, Any] | None = None, key: str = ""
    ) -> str:
        return self.api.start(AGENT, {"steps": list(steps), "sleep_seconds": sleep_seconds}, budget, key)

    def schedule(self, *steps: str) -> str:
        """Set a schedule of the crash-test agent that is due at once."""
        schedule_id = self.api.schedule(AGENT, {"steps": list(steps), "sleep_seconds": 0.3})
        self.make_due(schedule_id)
        return schedule_id

    def play(self, *run_ids: str, seconds: float = 40.0) -> list[str]:
        """Approve and settle until all runs have ended or time is up; return the verdicts."""
        verdicts: list[str] = []
        going, began = list(run_ids), time.monotonic()
        while going and time.monotonic() < began + seconds:
            for run in [self.api.run(run_id) for run_id in going]:
                if not run or run["state"] in ENDED:
                    going.remove(run["id"])
                else:
                    verdicts += self.attend(run)
            pause(began)
        return verdicts

    def attend(self, run: dict[str, Any], api: Api | None = None) -> list[str]:
        """Give a run what it needs from people now; return verdicts on unknown outcomes. Threads pass an `api`."""
        api = api or self.api
        kinds = {wait["kind"] for wait in run["waiting_for"]}
        verdicts: list[str] = []
        if "approval" in kinds:
            for approval in api.approvals(run["id"], state="open"):
                api.decide(approval)
        for wait in run["waiting_for"]:
            if wait["kind"] in ("signal", "input"):
                api.tell(run["id"], wait)
            elif wait["kind"] == "child":
                child = api.run(wait["detail"]["child"])
                while successor := child.get("renewed_as") or child.get("handed_off_to"):
                    child = api.run(successor)
                verdicts += self.attend(child, api) if child and child["state"] not in ENDED else []
            elif wait["kind"] == "budget":
                enough = run["budget"]["exceeded"]["enough"]
                api.set_budget(run["id"], enough | ({"wall_seconds": 3600} if "wall_seconds" in enough else {}))
        if run["state"] == "waiting_human" and "reconcile" in kinds and self._has_settled(run):
            verdicts += _settle(run, api)
        return verdicts

    def _has_settled(self, run: dict[str, Any]) -> bool:
        """Return whether an unknown call was left alone long enough: its bytes may still be under way."""
        since = next(wait["since"] for wait in run["waiting_for"] if wait["kind"] == "reconcile")
        return datetime.now(UTC) - moment(since) > timedelta(seconds=self.settling_seconds)

    def waits(self, run_id: str, kind: str) -> dict[str, Any]:
        def parked() -> dict[str, Any] | None:
            run = self.api.run(run_id)
            kinds = {wait["kind"] for wait in run["waiting_for"]}
            return run if kind in kinds and run["state"].startswith("waiting") else None

        return eventually(parked, f"the run waiting for {kind}") or {}

    def facts(self, run_id: str) -> Facts:
        run = self.api.run(run_id)
        if not run:
            return Facts(run_id, {}, [], [], [], [])
        return Facts(
            run_id,
            run,
            self.api.events(run_id),
            self.api.ledger(run_id),
            self.api.approvals(run_id),
            self.api.effects(run_id),
            self.links(run_id),
        )

    def row(self, run_id: str) -> tuple[str, int] | None:
        with self.database() as connection:
            return row_of(connection, run_id)

    def children(self, run_id: str) -> list[Facts]:
        with self.database() as connection:
            rows = connection.execute("SELECT id::text FROM runs_run WHERE parent = %s", [run_id]).fetchall()
        return [self.facts(child) for (child,) in rows]

    def judged(self, run_id: str, *steps: str, has_zombie: bool = False) -> list[Finding]:
        """Return the checker's findings for a run of these steps; the app's chain verifier has to agree."""
        facts = self.facts(run_id)
        assert chain.verify(UUID(run_id), map(chain.Link.of, facts.links)) == []
        return judge(facts, replace(expected_of(steps), may_send_late=has_zombie))


def expected_of(steps: Sequence[str]) -> Expected:
    calls = [call for step in steps for call in GATHERED.get(step, (step,))]
    effects = Counter(EFFECTS[call] for call in calls if call in EFFECTS)
    return Expected(
        effects,
        gates=sum(call in GATED for call in calls),
        denied={call: EFFECTS[call] for call in GATED},
        children=sum((FAMILIES | UNDONE).get(step, 0) for step in steps),
    )


def _settle(run: dict[str, Any], api: Api) -> list[str]:
    """Settle an unknown outcome truthfully; only `later` needs a receipt, which its callback brings."""
    run_id = run["id"]
    wait = next(wait for wait in run["waiting_for"] if wait["kind"] == "reconcile")
    call = wait["slot"], wait["detail"].get("attempt", 0)
    is_done = has_happened(*call, api.ledger(run_id), api.events(run_id), api.effects(run_id))
    if is_done and wait["detail"]["tool"] == "later":
        return []
    verdict = "happened" if is_done else "did_not"
    receipt = RECEIPTS.get(wait["detail"]["tool"], {}) if is_done else None
    answer = api.reconcile(run_id, verdict, receipt, wait_id=wait["id"])
    # 409: its worker is parking it or not yet known to be dead; or our first request was accepted and its answer lost.
    assert answer.status_code in (200, 409), answer.text
    if "still alive" in answer.text and (sender := re.search(r"pid (\d+) on", answer.text)):
        kill(int(sender[1]))  # as the error says
    return [verdict] if answer.status_code == 200 else []


def kill(pid: int, signum: int = signal.SIGKILL) -> bool:
    """Signal a process that the fleet just named. Return False if it is gone."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return False
    return True
