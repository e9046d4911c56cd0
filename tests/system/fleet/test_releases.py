"""Blue and green under load: no start is refused, lost or done twice, and each run stays on its version."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from durableagents.contrib.releases import services
from durableagents.contrib.releases.models import Ramp
from durableagents.contrib.releases.queries import VersionRow, versions_of
from durableagents.contrib.releases.services import RaiseBody, RampActBody, RampBody
from ledger.actors import Actor
from ledger.verification.runs import verify
from runs.engine.agents import registry
from runs.fleet.agent_versions import drivable
from runs.models import Run
from runs.services.starts import keys
from tests.integration.runs.stage import events
from tests.system.fleet.conftest import hired
from tests.waiting import eventually
from tests.world import only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
OPERATOR = Actor("user", "olivia", role="operator", auth="session")
SHOP = Actor("key", "shop", role="integrator", auth="api_key")
NAME, OLD, NEW = "fleet-release", "1.0.0", "2.0.0"
WHY = "the release plan"


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Load both versions, as every web process does during a ramp."""
    with only_for_now():
        from tests.system.fleet import releases

        for version in (OLD, NEW):
            if f"{NAME}@{version}" not in registry.graph_ids():
                releases._declare(version)
        yield


class Customers:
    def __init__(self) -> None:
        self.is_over, self.refused = threading.Event(), list[BaseException]()
        self.started: list[tuple[float, str, UUID, str]] = []
        self._threads = [threading.Thread(target=self._order, args=(n,)) for n in range(2)]

    def __enter__(self) -> Customers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join(30)

    def _order(self, of: int) -> None:
        n = of
        while not self.is_over.is_set():
            customer = f"customer-{n % 120}"
            try:
                with transaction.atomic():
                    wanted = keys.Wanted(NAME, {"customer": customer}, business_key=customer, on_conflict="queue")
                    run = keys.start(wanted, by=SHOP).run
                self.started.append((time.monotonic(), customer, run.id, run.version))
            except Exception as error:
                self.refused.append(error)
            n += 2
            time.sleep(0.1)
        connection.close()

    def seen(self, more: int) -> None:
        wanted = len(self.started) + more
        eventually(lambda: len(self.started) >= wanted or self.refused, what=f"{more} more starts")


def standing(version: str) -> VersionRow:
    return next(one for one in versions_of(NAME) if one.version == version)


def test_a_release_by_a_ramp_under_load(process_env: dict[str, str], tmp_path: Path, web: None) -> None:
    effects = tmp_path / "effects"
    shared = process_env | {"DURABLEAGENTS_AGENTS": "tests.system.fleet.releases", "COUNTER_FILE": str(effects)}
    for color in ("blue", "green"):
        (tmp_path / color).mkdir()
    blue_env, green_env = (shared | {"RELEASE_VERSIONS": version} for version in (OLD, NEW))
    services.close_version(NAME, NEW, by=OPERATOR, justification="its workers come later")
    settings = "durableagents.settings"
    with (
        hired(blue_env, tmp_path / "blue", settings=settings) as blue,
        hired(green_env, tmp_path / "green", settings=settings) as green,
        Customers() as customers,
    ):
        blue.start(processes=1, wait=False)
        customers.seen(20)
        green.start(processes=1, wait=False)
        eventually(lambda: f"{NAME}@{NEW}" in drivable(), what="the newer version's worker")
        assert {version for *_, version in customers.started} == {OLD}
        ramp = services.create_ramp(
            RampBody(agent=NAME, from_version=OLD, to_version=NEW, share=10, justification=WHY), by=OPERATOR
        )
        customers.seen(30)
        for share in (50, 100):
            services.raise_ramp(ramp.pk, RaiseBody(share=share, justification=WHY), by=OPERATOR)
            customers.seen(30)
        services.finish_ramp(ramp.pk, RampActBody(justification=WHY), by=OPERATOR)
        services.close_version(NAME, OLD, by=OPERATOR, justification="released")
        customers.seen(10)
        eventually(lambda: not Run.objects.filter(agent=NAME, version=OLD, started_at=None).exists(), what="all begun")
        assert blue.stop() == 0
        blue.start(processes=1, wait=False, DURABLEAGENTS_SERVE=f"{NAME}@{OLD}", DURABLEAGENTS_DRAIN_ONLY="true")
        eventually(lambda: standing(OLD).is_only_drained, what="a worker that drains it")
        eventually(lambda: standing(OLD).living == 0, what="the end of the older version's last run")
        assert blue.stop() == 0
        customers.seen(10)
        customers.is_over.set()
        eventually(lambda: standing(NEW).living == 0, what="the end of the newer version's last run")
    row = Ramp.objects.get(pk=ramp.pk)
    assert (row.state, row.halted_by) == ("done", None)
    _check(customers, effects, ramp.pk)


def _check(customers: Customers, effects: Path, ramp: int) -> None:
    assert customers.refused == [] and len(customers.started) >= 120
    lines = Counter(effects.read_text().splitlines())
    for run in Run.objects.filter(agent=NAME):
        assert str(run.state) == "completed", (run.id, run.state, events(run)[-1])
        done = {f"{run.id} {run.version} {step}": 1 for step in ("first", "second")}
        assert {line: n for line, n in lines.items() if line.startswith(str(run.id))} == done
    assert len(lines) == 2 * len(customers.started) == 2 * Run.objects.filter(agent=NAME).count()
    sides = defaultdict[str, list[str]](list)
    for _, customer, _, version in sorted(customers.started):
        sides[customer].append(version)
    assert all(versions == sorted(versions) for versions in sides.values()), "nobody went back to the older one"
    assert {version for *_, version in customers.started} == {OLD, NEW}
    assert Ramp.objects.get(pk=ramp).state == "done"
    some = [run_id for *_, run_id, _ in customers.started[::10]]
    assert [found for run_id in some for found in verify(run_id).problems] == []
    assert os.environ.get("COUNTER_FILE") is None
