"""Readers of one list share a rendering; nobody gets another's rights, and everybody sees their own acts."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from channels.db import database_sync_to_async
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver, reverse

from ledger.web import shared_rendering
from ledger.web.page_base import SharedPage
from ledger.web.roles import ROLES
from ledger.web.shared_rendering import Renderings, renderings
from runs.console import sockets
from runs.journal import notify
from runs.services import lifecycle
from tests.cases import each_case
from tests.integration.console.conftest import OLGA, Reader, start
from tests.integration.console.test_live import socket
from tests.integration.scale.test_statements import named
from tests.tiers import sample

pytestmark = pytest.mark.django_db
AS_OF = re.compile(r'data-as-of="(\d+)"')


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    renderings.clear()
    yield
    renderings.clear()


def shared_pages() -> list[str]:
    found = [
        name
        for name, route in named(get_resolver())
        if issubclass(getattr(route.callback, "view_class", object), SharedPage)
    ]
    assert {"overview", "runs", "reconcile", "audit", "fleet", "recoveries"} <= set(found)
    return [reverse(name) for name in found]


def part(reader: Reader, path: str, since: int | None = 1) -> Any:
    question = urlencode({"fragment": "live", **({} if since is None else {"since": since})})
    return reader.get(f"{path}{'&' if '?' in path else '?'}{question}")


def as_of(answer: Any) -> int:
    found = AS_OF.search(answer.content.decode())
    assert found is not None
    return int(found.group(1))


def words(answer: Any) -> str:
    return re.sub(r"\d+ ?(s|ms|m|min|seconds?)\b|\d\d:\d\d(:\d\d)?", "", AS_OF.sub("", answer.content.decode()))


def test_watchers_of_one_list_cost_one_rendering(
    reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_rendering, "SECONDS", 60.0)  # for a busy machine
    start()
    watchers = [reader("operator", name=f"olga{n}") for n in range(5)]
    answers, items = [], []
    for each in watchers:
        with CaptureQueriesContext(connection) as found:
            answers.append(part(each, "/runs"))
        items.append(len(found))
    assert items[0] > 4 and items[1:] == [1] * 4, "who asks is read each time, the list once"
    assert len({answer.content for answer in answers}) == 1 and answers[0].headers["X-Live"] == "1"


@each_case("query", ["q=chairs", "state=failed", "before=x"])
def test_another_filter_is_another_rendering(operator: Reader, query: str) -> None:
    start()
    assert part(operator, "/runs").content != part(operator, f"/runs?{query}").content


def test_nobody_is_given_what_others_may_see(reader: Callable[..., Reader]) -> None:
    """Each page, first for one role and then for all others: they see what they would see alone."""
    lifecycle.pause(start().id, by=OLGA, justification="why")
    people = {role: reader(role) for role in ROLES}
    alone: dict[tuple[str, str], Any] = {}
    for path in shared_pages():
        for role in ROLES:
            renderings.clear()
            alone[path, role] = part(people[role], path)
        for first in sample(ROLES, 2):
            renderings.clear()
            part(people[first], path)
            for second in (role for role in ROLES if role != first):
                given = part(people[second], path)
                assert given.status_code == alone[path, second].status_code, (path, first, second)
                assert words(given) == words(alone[path, second]), (path, first, second)
    assert len({words(alone["/runs", role]) for role in ROLES}) > 1, "and it does differ"


def test_two_roles_at_once_are_not_one_of_them(reader: Callable[..., Reader]) -> None:
    start()
    both, one = reader("operator", "auditor", name="both"), reader("auditor", name="one")
    assert "Start a run" in part(both, "/runs").content.decode()
    assert "Start a run" not in part(one, "/runs").content.decode()


@each_case("role", ROLES)
def test_nothing_of_one_person_is_in_what_is_shared(role: str, reader: Callable[..., Reader]) -> None:
    lifecycle.pause(start().id, by=OLGA, justification="why")
    ada, bob = (reader(role, name=name, checks_csrf=True) for name in ("ada", "bob"))
    ada.get("/account/password")  # she has a token from here on
    for path in shared_pages():
        found = part(ada, path)
        if found.status_code == 200:
            body = found.content.decode()
            assert "csrfmiddlewaretoken" not in body and 'method="post"' not in body and not found.cookies, path
            renderings.clear()
            assert words(part(bob, path)) == words(found), path


def test_a_page_with_a_form_for_deciding_is_nobody_elses(reader: Callable[..., Reader]) -> None:
    view = next(route.callback for name, route in named(get_resolver()) if name == "inbox")
    assert not issubclass(view.view_class, SharedPage)  # type: ignore[union-attr]


def test_what_is_kept_opens_no_door(reader: Callable[..., Reader]) -> None:
    start()
    stays, leaves, loses = (reader("operator", name=name) for name in ("stays", "leaves", "loses"))
    assert {part(each, "/runs").status_code for each in (stays, leaves, loses)} == {200}
    leaves.client.logout()
    assert loses.user is not None
    loses.user.groups.clear()
    assert [part(each, "/runs").status_code for each in (stays, leaves, loses)] == [200, 401, 403]


def test_people_see_what_they_did_at_once(reader: Callable[..., Reader]) -> None:
    """Someone else's page was rendered just before the act and is still fresh."""
    run = start()
    olga, other = reader("operator", name="olga"), reader("operator", name="other")
    old = part(other, "/runs")
    assert olga.post(f"/runs/{run.id}/cancellations", justification="why").status_code == 302
    page = olga.get("/runs")
    after = part(olga, "/runs", since=as_of(page))
    assert "cancelled <b>1</b>" in after.content.decode() and "cancelled <b>0</b>" in old.content.decode()
    assert as_of(after) >= as_of(page) > as_of(old)
    assert part(other, "/runs", since=as_of(old)).content == after.content, "and what they see is the others' too"


def test_a_page_is_never_shown_older_than_it_is(operator: Reader) -> None:
    first = part(operator, "/runs")
    start()
    assert part(operator, "/runs", since=as_of(first)).content == first.content
    assert part(operator, "/runs", since=as_of(first) + 1).content != first.content


@each_case("since", [None, "", "x", "-1", "1e9", "²", "9" * 40])
def test_who_names_no_moment_is_shown_this_one(operator: Reader, since: Any) -> None:
    first = part(operator, "/runs")
    start()
    assert part(operator, "/runs", since=since).content != first.content


def test_nothing_is_kept_for_longer_than_half_a_second(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    first = part(operator, "/runs")
    start()
    monkeypatch.setattr("ledger.web.shared_rendering.SECONDS", 0)
    assert part(operator, "/runs").content != first.content


def test_what_many_ask_for_at_once_is_made_by_the_first() -> None:
    kept, made, is_open = Renderings(), [], threading.Event()

    def make() -> str:
        made.append(1)
        is_open.wait(10)
        return "x"

    with ThreadPoolExecutor(20) as threads:
        items = [threads.submit(kept.get, "key", since=1, began=n, make=make) for n in range(5, 25)]
        while not made:
            is_open.wait(0.001)
        is_open.set()
        assert {each.result().body for each in items} == {"x"}
    assert len(made) <= 2, "those that came while it was made were given it"


def test_someone_who_has_to_see_more_does_not_wait_for_what_is_older() -> None:
    kept, is_open = Renderings(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(kept.get, "key", since=1, began=5, make=lambda: str(is_open.wait(10)))
        while "key" not in kept._newest:
            is_open.wait(0.001)
        assert kept.get("key", since=6, began=7, make=lambda: "newer").body == "newer"
        is_open.set()
        assert slow.result().body == "True"
    assert kept.get("key", since=1, began=9, make=lambda: "not made").body == "newer"


def test_a_rendering_that_fails_fails_for_nobody_else() -> None:
    kept, is_open = Renderings(), threading.Event()

    def fails() -> str:
        is_open.wait(10)
        raise ZeroDivisionError

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(kept.get, "key", since=1, began=5, make=fails)
        while "key" not in kept._newest:
            is_open.wait(0.001)
        second = threads.submit(kept.get, "key", since=1, began=6, make=lambda: "mine")
        is_open.set()
        assert second.result().body == "mine"
        with pytest.raises(ZeroDivisionError):
            first.result()
    assert kept.get("key", since=1, began=9, make=lambda: "again").body in ("again", "mine")


def test_made_up_filters_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.web.shared_rendering.MAX_RENDERED", 10)
    kept = Renderings()
    for n in range(100):
        kept.get(n, since=1, began=5, make=lambda: "x")
        assert len(kept._newest) <= 10


@pytest.mark.django_db(transaction=True)
async def test_a_list_is_told_of_a_burst_once(operator: Reader) -> None:
    run = await database_sync_to_async(start)()
    lists = [socket(operator, "/ws/lists") for _ in range(3)]
    for each in lists:
        assert await each.connect()
    items: list[list[int]] = [[], [], []]

    async def hear(n: int, until: int) -> None:
        while not items[n] or items[n][-1] < until:
            data = json.loads((await lists[n]._app.receive_output(timeout=10))["text"])
            assert set(data) == {"run", "seq", "at"} and (data["run"], data["seq"]) == (None, 0)
            items[n].append(data["at"])

    await asyncio.gather(*(hear(n, 1) for n in range(3)))
    async with notify.AsyncBell() as bell:
        for seq in range(300):
            bell.ring(uuid4(), seq)
            await asyncio.sleep(0.002)
    last = await database_sync_to_async(sockets.database_now)()
    await database_sync_to_async(lifecycle.pause)(run.id, by=OLGA, justification="why")
    await asyncio.gather(*(hear(n, last) for n in range(3)))
    assert all(len(each) < 100 for each in items), "300 rings, and not 300 messages"
    assert all(each == sorted(each) for each in items)
    for each in lists:
        await each.leave()


@pytest.mark.django_db(transaction=True)
async def test_what_a_list_is_told_of_is_in_what_it_reads(reader: Callable[..., Reader]) -> None:
    """The signal's moment is after the commit, so a rendering from before it is not reused."""
    olga = await database_sync_to_async(reader)("operator")
    run = await database_sync_to_async(start)()
    link = socket(olga, "/ws/lists")
    assert await link.connect()
    before = await database_sync_to_async(part)(olga, "/runs")
    await database_sync_to_async(lifecycle.cancel)(run.id, by=OLGA, justification="why")
    at = 0
    while at <= as_of(before):
        at = json.loads((await link._app.receive_output(timeout=10))["text"])["at"]
    after = await database_sync_to_async(part)(olga, "/runs", at)
    assert after.content != before.content and as_of(after) >= at
    await link.leave()


async def taken(pulse: sockets.Pulse) -> int:
    return await pulse.newest(0, may_wait=True)


@pytest.mark.django_db(transaction=True)
async def test_rings_without_a_moment_mean_now() -> None:
    began, pulse = await database_sync_to_async(sockets.database_now)(), sockets.Pulse()
    pulse.hear("a:1,@50")
    pulse.hear("b:1,@40")
    assert await taken(pulse) == 50
    for odd in ("a:1", "a:1,@", "a:1,@x", "a:1,@-5", "nonsense", "", "a:1,@" + "9" * 30):
        pulse.hear("a:1,@50")
        pulse.hear(odd)
        pulse.hear("a:2,@60")
        assert await taken(pulse) >= began, odd
    pulse.hear("a:1,@50")
    pulse.reread()
    assert await taken(pulse) >= began
    assert await pulse.newest(7, may_wait=False) == 7
    assert [*notify.parse("a:1,b:2,@50")] == [("a", 1), ("b", 2)]


@pytest.mark.django_db(transaction=True)
async def test_however_many_watch_each_is_told_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three at a time of ten, with constant changes: nobody gets a second turn while another waits for the first."""
    monkeypatch.setattr(sockets, "AT_ONCE", 3)
    monkeypatch.setattr(sockets, "SECONDS", 0.05)
    all_of_them, turns = sockets.Ticks(), []

    async def watch(n: int) -> None:
        async with all_of_them.watch() as watcher:
            async for _ in watcher:
                turns.append(n)

    async with notify.AsyncBell() as bell:
        tasks = [asyncio.create_task(watch(n)) for n in range(10)]
        while len(turns) < 70:
            bell.ring(uuid4(), 1)
            await asyncio.sleep(0.01)
    running = [*tasks, all_of_them._task, notify.hub._listener]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*(task for task in running if task is not None), return_exceptions=True)
    counts = [turns[10:70].count(n) for n in range(10)]  # the first turn is on arrival
    assert min(counts) > 0 and max(counts) - min(counts) <= 3, counts
