"""Every process of an installation is killed in turn while vendors are onboarded: each vendor is onboarded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from durableagents.demo.vendor_onboard import agent as onboarding
from tests.system.crash.checker import Expected, judge
from tests.system.crash.people import People
from tests.system.crash.stack import Stack, kill
from tests.system.infra.installation import cmdline
from tests.waiting import eventually

ONBOARDED = Expected(
    {
        "portal.request_w9": 1,
        "erp.create_vendor": 1,
        "erp.file_purchase_order": 1,
        "credentials.provision": 1,
        "email.send_welcome": 1,
    },
    gates=1,
)
# Kind in the fleet, a word of the process's title, and the event of a run at which it is struck.
VICTIMS = [
    ("worker", "", 4),
    ("worker", "", 9),
    ("worker", "", 14),
    ("cluster", "sentinel", 6),
    ("cluster", "sentinel", 19),
    ("supervisor", "", 11),
    ("web", "", 8),
    ("sandbox", "", 13),
    ("postgres", "", 16),
]
RUNS_PER_VICTIM = 2


@pytest.fixture
def people(stack: Stack) -> Iterator[People]:
    people = People(stack)
    people.start()
    yield people
    people.leave()


def test_each_vendor_is_onboarded_once_whatever_is_killed(stack: Stack, people: People) -> None:
    started: list[str] = []
    for kind, title, event in VICTIMS:
        # recover from the last kill, so that this one strikes something that would have lived
        stack.all_workers()
        for _ in range(RUNS_PER_VICTIM):
            started.append(stack.api.start("vendor-onboard@1.0.0", onboarding.samples[0].input))
            people.look_after(started[-1])
        last = started[-1]
        eventually(lambda last=last, event=event: stack.api.run(last)["seq"] >= event, f"event {event} of a run")  # type: ignore[misc]
        victim = eventually(lambda kind=kind, title=title: _strike(stack, kind, title), f"a {kind} {title} to kill")  # type: ignore[misc]
        eventually(lambda kind=kind, victim=victim: _is_replaced(stack, kind, victim), f"another {kind} {title}")  # type: ignore[misc]

    eventually(lambda: not people.open_runs(), "every run having ended", seconds=60)
    findings = [finding for run_id in started for finding in judge(stack.facts(run_id), ONBOARDED)]
    assert findings == []
    assert len({row["run_id"] for row in stack.api.effects() if row["run_id"] in started}) == len(started)


def _strike(stack: Stack, kind: str, title: str) -> int | None:
    """Return the process that was killed; the fleet's list may name one that has just ended by itself."""
    return next((pid for pid in stack.pids(kind) if title in cmdline(pid) and kill(pid)), None)


def _is_replaced(stack: Stack, kind: str, victim: int) -> bool:
    pids = stack.pids(kind)
    return bool(pids) and victim not in pids
