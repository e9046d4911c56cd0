"""A small crowd at the door: who has business here hardly notices. `python -m tests.system.crash --doors` brings the
whole
one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Group, User

from durableagents.identity.auth import issue_key
from tests.cases import each_case
from tests.conftest import CHECKOUT
from tests.system.crash import doors
from tests.system.fleet.conftest import until
from tests.tiers import many

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def web(process_env: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Port and pid of a web process."""
    port = int(process_env["PORT"])
    command = [sys.executable, str(CHECKOUT / "manage.py"), "web"]
    process = subprocess.Popen(command, env=process_env, cwd=CHECKOUT, start_new_session=True)

    def is_alive() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(is_alive, what="web", seconds=60)
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()


def test_a_crowd_at_the_door_is_hardly_noticed_by_those_who_have_business_here(web: tuple[int, int]) -> None:
    user = User.objects.create_user("operator", password="the right password")
    user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    report = doors.besiege(*web, issue_key(user, "test"), slow=40, greedy=40, guessing=12, seconds=many(15, 6))
    assert report.findings() == [], str(report)
    assert any(told.startswith("guessing") for told in report.told), "passwords were tried"
    assert report.told.get("greedy 404", 0) + report.told.get("greedy 413", 0) > 0, "callbacks were forged"


def report(**changed: Any) -> doors.Report:
    """A good one, with what is changed."""
    good = doors.Report(
        [0.01] * 100,
        [0.02] * 100,
        [0.02] * 100,
        [0.1] * 100,
        {"200": 300},
        {"greedy 404": 5, "greedy 503 busy": 5},
        [1.0] * 100,
        100,
        110,
    )
    for name, value in changed.items():
        setattr(good, name, value)
    return good


@each_case(
    ("changed", "says"),
    [
        ({"health": [0.02] * 90 + [0.3] * 10}, "/healthz"),
        ({"health": []}, "/healthz"),
        ({"api": [0.1] * 90 + [0.7] * 10}, "the API"),
        ({"statuses": {"200": 300, "500": 1}}, "500"),
        ({"statuses": {"200": 300, "503": 1}}, "503"),
        ({"told": {"greedy 500": 1}}, "5xx"),
        ({"told": {"greedy 503": 1}}, "5xx"),
        ({"rss_after": 130}, "memory"),
    ],
)
def test_the_judge_of_the_door_finds_what_is_wrong(changed: dict[str, Any], says: str) -> None:
    assert report().findings() == []
    (finding,) = report(**changed).findings()
    assert says in finding


def test_a_slow_machine_is_given_as_much_more_as_it_took_before() -> None:
    assert report(health_before=[0.05] * 100, health=[0.4] * 100).findings() == []
    assert report(health_before=[0.05] * 100, health=[0.6] * 100).findings() != []
