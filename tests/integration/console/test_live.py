"""Sockets say that something changed, and tell nothing to people without access."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from uvicorn.protocols.utils import ClientDisconnected

from durableagents.identity import own_tags
from durableagents.server.asgi import application
from ledger import events as e
from ledger.actors import Actor
from ledger.models import Head
from ledger.web.roles import roles
from runs.console import socket_watch, sockets
from runs.journal import notify
from runs.models import Listener, Overheard, Run
from runs.overheard import ears as ears_
from runs.overheard.ears import LiveSubscriptions
from runs.queries import families
from runs.services import command, lifecycle
from tests.cases import each_case
from tests.integration.console.conftest import OLGA, SHOP, Reader, start

pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = (b"origin", b"http://localhost")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the lookup intervals; production must check sessions within five seconds."""
    assert socket_watch.CHECK_SECONDS <= 4
    monkeypatch.setattr(socket_watch, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(sockets, "OWN_SECONDS", 0.05)
    monkeypatch.setattr(ears_, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr(ears_, "TROUBLE_SECONDS", 0.02)


class Link:
    def __init__(self, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "subprotocols": [],
        }
        self._app = ApplicationCommunicator(application, scope)

    async def connect(self) -> bool:
        await self._app.send_input({"type": "websocket.connect"})
        return str((await self._app.receive_output(timeout=10))["type"]) == "websocket.accept"

    async def say(self, **frame: Any) -> None:
        await self._app.send_input({"type": "websocket.receive", **frame})

    async def hear(self) -> dict[str, Any]:
        message = await self.hear_any()
        assert set(message) == {"run", "seq"}
        return message

    async def hear_any(self) -> dict[str, Any]:
        output = await self._app.receive_output(timeout=10)
        assert output["type"] == "websocket.send", output
        message: dict[str, Any] = json.loads(output["text"])
        return message

    async def is_quiet(self) -> bool:
        return bool(await self._app.receive_nothing(timeout=0.4))

    async def closed(self) -> int:
        while True:
            output = await self._app.receive_output(timeout=10)
            if output["type"] == "websocket.close":
                await self.leave()
                return int(output["code"])

    async def leave(self) -> None:
        await self._app.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._app.wait(timeout=10)


def socket(reader: Reader, path: str = "/ws/live", origin: tuple[bytes, bytes] = ORIGIN) -> Link:
    jar = "; ".join(f"{name}={morsel.value}" for name, morsel in reader.client.cookies.items())
    return Link(path, [origin, (b"host", b"localhost"), (b"cookie", jar.encode())])


async def opened(link: Link) -> dict[str, Any]:
    assert await link.connect()
    return await link.hear()


async def hears(link: Link, run_id: str, seq: int) -> None:
    while True:
        heard = await link.hear()
        if heard["run"] == run_id and heard["seq"] >= seq:
            return


async def test_a_socket_says_which_run_moved_and_how_far(operator: Reader) -> None:
    run = await database_sync_to_async(start)()
    every, one = socket(operator), socket(operator, f"/ws/runs/{run.id}")
    assert await opened(every) == {"run": None, "seq": 0}
    assert await opened(one) == {"run": str(run.id), "seq": 1}
    await database_sync_to_async(lifecycle.pause)(run.id, by=OLGA, justification="why")
    await hears(every, str(run.id), 2)
    await hears(one, str(run.id), 2)
    await every.leave()
    await one.leave()


async def test_a_runs_socket_is_silent_about_other_runs(operator: Reader) -> None:
    run, other = await database_sync_to_async(start)(), await database_sync_to_async(start)()
    link = socket(operator, f"/ws/runs/{run.id}")
    await opened(link)
    await database_sync_to_async(lifecycle.pause)(other.id, by=OLGA, justification="why")
    await database_sync_to_async(lifecycle.pause)(run.id, by=OLGA, justification="why")
    while (heard := await link.hear()) != {"run": str(run.id), "seq": 2}:
        assert heard["run"] in (None, str(run.id))
    await link.leave()


@transaction.atomic
def written(run_id: UUID) -> None:
    """Append an event that changes nothing else."""
    command.journal(run_id, e.RunClaimed(worker="w", host="h", pid=1, epoch=1, cause="start"), by=OLGA)


async def test_a_parents_page_is_told_once_of_each_change_of_a_child(operator: Reader) -> None:
    parent, child = await database_sync_to_async(start)(), await database_sync_to_async(start)()
    await Run.objects.filter(pk=child.pk).aupdate(parent=parent.pk, parent_slot="0.1/1", depth=1)
    link = socket(operator, f"/ws/runs/{parent.id}")
    await opened(link)
    for act in (lifecycle.pause, lifecycle.resume, lifecycle.pause):
        await database_sync_to_async(act)(child.id, by=OLGA, justification="why")
        while (heard := await link.hear()) == {"run": None, "seq": 0}:
            pass
        assert heard == {"run": str(parent.id), "seq": 0}, "read again: the parent's own journal has not grown"
    await database_sync_to_async(written)(child.id)
    await database_sync_to_async(lifecycle.pause)(parent.id, by=OLGA, justification="why")
    assert (await link.hear())["seq"] == 2, "what a child only writes rings nobody above"
    await link.leave()


async def test_a_socket_that_sends_more_than_fifty_messages_a_second_is_closed(operator: Reader) -> None:
    run = await database_sync_to_async(start)()
    link = socket(operator)
    await opened(link)
    for _ in range(sockets.MAX_MESSAGES_PER_SECOND):
        await link.say(text="x")
    await database_sync_to_async(lifecycle.pause)(run.id, by=OLGA, justification="why")
    await hears(link, str(run.id), 2)
    for _ in range(2 * sockets.MAX_MESSAGES_PER_SECOND):
        await link.say(text="x")
    assert await link.closed() == sockets.POLICY_VIOLATION


async def test_nobody_listens_without_signing_in(reader: Callable[..., Reader]) -> None:
    run = await database_sync_to_async(start)()
    await database_sync_to_async(say)(run, "secret")
    for path in ("/ws/live", f"/ws/runs/{run.id}"):
        link = socket(reader(None), path)
        assert await link.connect()
        assert await link.closed() == socket_watch.SIGNED_OUT
    assert await database_sync_to_async(lambda: Listener.objects.count())() == 0


async def test_a_cookie_that_no_column_holds_is_nobodys(operator: Reader) -> None:
    jar = f'{settings.SESSION_COOKIE_NAME}="\\000x"'.encode()
    hostile, honest = Link("/ws/live", [ORIGIN, (b"host", b"localhost"), (b"cookie", jar)]), socket(operator)
    assert all(await asyncio.gather(hostile.connect(), honest.connect()))
    assert await hostile.closed() == socket_watch.SIGNED_OUT
    assert await honest.hear() == {"run": None, "seq": 0}
    await honest.leave()


async def test_nobody_listens_without_a_role(reader: Callable[..., Reader]) -> None:
    nobody = await database_sync_to_async(reader)("none")
    link = socket(nobody)
    assert await link.connect()
    assert await link.closed() == socket_watch.NOT_ALLOWED


async def test_signing_out_closes_the_socket(operator: Reader) -> None:
    link = socket(operator)
    await opened(link)
    await database_sync_to_async(operator.client.logout)()
    assert await link.closed() == socket_watch.SIGNED_OUT


@pytest.mark.parametrize("change", ["role", "inactive", "password"])
async def test_losing_a_role_an_account_or_a_password_closes_the_socket(operator: Reader, change: str) -> None:
    link = socket(operator)
    await opened(link)
    user = operator.user
    assert user is not None

    def lose() -> None:
        if change == "role":
            user.groups.remove(Group.objects.get(name="operator"))
        elif change == "inactive":
            type(user).objects.filter(pk=user.pk).update(is_active=False)
        else:
            user.set_password("another")
            user.save()

    await database_sync_to_async(lose)()
    assert await link.closed() == (socket_watch.NOT_ALLOWED if change == "role" else socket_watch.SIGNED_OUT)


async def test_a_session_of_unknown_state_is_closed(operator: Reader, reader: Callable[..., Reader]) -> None:
    odd = await database_sync_to_async(reader)("auditor")
    links = [socket(operator), socket(odd)]
    for link in links:
        await opened(link)

    def spoil() -> None:
        kept = odd.client.session
        kept[SESSION_KEY] = "no account's number"
        kept.save()
        assert operator.user is not None
        operator.user.groups.clear()

    await database_sync_to_async(spoil)()
    assert await links[0].closed() == socket_watch.NOT_ALLOWED
    assert await links[1].closed() == socket_watch.BROKEN
    again, honest = socket(odd), socket(await database_sync_to_async(reader)("operator", name="honest"))
    assert all(await asyncio.gather(again.connect(), honest.connect()))
    assert await again.closed() == socket_watch.BROKEN
    assert await honest.hear() == {"run": None, "seq": 0}
    await honest.leave()


async def test_what_the_database_refuses_is_no_outage_in_which_all_listen_on(operator: Reader) -> None:
    link = socket(operator)
    await opened(link)

    def rename(before: str, after: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE auth_user RENAME COLUMN {before} TO {after}")

    await database_sync_to_async(rename)("last_login", "newest_login")
    try:
        assert await link.closed() == socket_watch.BROKEN
    finally:
        await database_sync_to_async(rename)("newest_login", "last_login")


async def test_an_unknown_run_has_no_socket(operator: Reader) -> None:
    link = socket(operator, f"/ws/runs/{uuid4()}")
    assert await link.connect()
    assert await link.closed() == sockets.NO_SUCH_RUN


@each_case("path", ["/ws/nope", "/", "/ws/runs/no-uuid", "/ws/live/", "/api/v1/runs", "/ws/%ff"])
async def test_an_address_that_leads_nowhere_says_so_and_leaves_no_traceback(
    reader: Callable[..., Reader], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    link = socket(reader(None), path)
    assert await link.connect()
    assert await link.closed() == sockets.NO_SUCH_RUN
    assert not [record for record in caplog.records if record.exc_info]


@each_case("path", ["/ws/live", "/ws/lists"])
async def test_a_browser_that_left_is_no_error(operator: Reader, path: str, caplog: pytest.LogCaptureFixture) -> None:
    link, has_left, was_told = socket(operator, path), asyncio.Event(), asyncio.Event()

    async def served(scope: Any, receive: Any, send: Any) -> None:
        async def to_a_browser(message: Any) -> None:
            if has_left.is_set():
                was_told.set()
                raise ClientDisconnected
            await send(message)

        await application(scope, receive, to_a_browser)

    link._app = ApplicationCommunicator(served, link._app.scope)
    assert await link.connect()
    await link.hear_any()
    has_left.set()
    await database_sync_to_async(start)()
    await asyncio.wait_for(was_told.wait(), 10)
    await link.leave()
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


async def test_sockets_are_looked_up_together(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[int] = []
    plain = socket_watch.verdicts

    def counted(keys: Any) -> Any:
        keys = list(keys)
        items.append(len(keys))
        with CaptureQueriesContext(connection) as queries:
            found = plain(keys)
        assert len(queries) <= 4
        return found

    monkeypatch.setattr(socket_watch, "verdicts", counted)
    monkeypatch.setattr(socket_watch, "CHECK_SECONDS", 0.5)
    links = [socket(operator) for _ in range(60)]
    assert all(await asyncio.gather(*(link.connect() for link in links)))
    await asyncio.gather(*(link.hear() for link in links))
    connects = len(items)
    assert connects < 60, "those that come together are answered together"
    await database_sync_to_async(operator.client.logout)()
    assert set(await asyncio.gather(*(link.closed() for link in links))) == {socket_watch.SIGNED_OUT}
    assert len(items) - connects < 20, "one look for all of them, however often it is taken"


async def test_another_site_cannot_listen(operator: Reader) -> None:
    link = socket(operator, origin=(b"origin", b"https://elsewhere.example"))
    assert not await link.connect()
    await link.leave()


async def test_what_a_page_says_is_of_no_interest(operator: Reader) -> None:
    link = socket(operator)
    await opened(link)
    await link.say(text="{broken")
    await link.say(bytes=b"\xff" * 1000)
    run = await database_sync_to_async(lifecycle.start)("buyer", {"item": "x"}, by=Actor("key", "shop"))
    await hears(link, str(run.id), 1)
    await link.leave()


def test_socket_addresses_are_the_three_that_these_tests_know() -> None:
    from durableagents.server.routing import websocket_urlpatterns

    assert settings.ASGI_APPLICATION == "durableagents.server.asgi.application"
    assert {str(route.pattern) for route in websocket_urlpatterns} == {
        "ws/live",
        "ws/lists",
        "ws/runs/<uuid:run_id>",
        "",
    }
    assert str(websocket_urlpatterns[-1].pattern) == "", "and at the end what answers for all others"


def started_by(reader: Reader, *tags: str) -> Run:
    by = SHOP if reader.user is None else replace(SHOP, person=reader.user.pk)
    return lifecycle.start("buyer", {"item": "chairs"}, by=by, tags=tags)


async def test_a_run_of_others_is_for_an_integrator_one_that_there_is_not(reader: Callable[..., Reader]) -> None:
    somebody = await database_sync_to_async(reader)("integrator")
    own, others = await database_sync_to_async(started_by)(somebody), await database_sync_to_async(start)()
    codes = []
    for run_id in (others.pk, uuid4()):
        link = socket(somebody, f"/ws/runs/{run_id}")
        assert await link.connect()
        codes.append(await link.closed())
    assert codes == [sockets.NO_SUCH_RUN] * 2
    link = socket(somebody, f"/ws/runs/{own.pk}")
    assert await link.connect()
    assert (await link.hear())["run"] == str(own.pk)
    await link.leave()


async def test_an_integrator_hears_of_their_own_runs_alone(reader: Callable[..., Reader]) -> None:
    somebody = await database_sync_to_async(reader)("integrator")
    link = socket(somebody)
    assert await link.connect()
    assert await link.hear() == {"run": None, "seq": 0}
    for _ in range(3):
        await database_sync_to_async(start)()
    own = await database_sync_to_async(started_by)(somebody)
    for _ in range(3):
        await database_sync_to_async(start)()
    heard = await link.hear()
    while heard["run"] is None:  # events may have been missed: it names none
        heard = await link.hear()
    assert heard["run"] == str(own.pk)
    assert await link.is_quiet()
    await link.leave()


async def test_an_integrator_hears_of_their_runs(reader: Callable[..., Reader]) -> None:
    somebody = await database_sync_to_async(reader)("integrator")
    link = socket(somebody, "/ws/lists")
    assert await link.connect()
    while not await link.is_quiet():
        await link.hear_any()
    await database_sync_to_async(start)()
    assert await link.is_quiet(), "that others move is nobody else's business"
    await database_sync_to_async(started_by)(somebody)
    assert (await link.hear_any())["at"] > 0
    await link.leave()


async def test_whose_own_tag_is_taken_stops_listening(reader: Callable[..., Reader]) -> None:
    somebody = await database_sync_to_async(reader)("integrator")
    run = await database_sync_to_async(started_by)(await database_sync_to_async(reader)(None), "acme")
    own = await database_sync_to_async(own_tags.give)(somebody.user, "acme", justification="Theirs.")
    link = socket(somebody, f"/ws/runs/{run.pk}")
    assert await link.connect()
    assert (await link.hear())["run"] == str(run.pk)
    await database_sync_to_async(own_tags.take)(own, justification="No longer theirs.")
    assert await link.closed() == socket_watch.SEES_OTHERWISE
    again = socket(somebody, f"/ws/runs/{run.pk}")
    assert await again.connect()
    assert await again.closed() == sockets.NO_SUCH_RUN


def by(who: Reader) -> Actor:
    assert who.user is not None
    return Actor("user", who.user.username, role=min(roles(who.user)), auth="session", person=who.user.pk)


def test_processes_of_before_pass_over_what_is_rung_for_a_person() -> None:
    payload = f"{notify.mark_of(7)},00000000-0000-0000-0000-000000000001:4,@1795671034000000"
    assert list(notify.parse(payload)) == [("00000000-0000-0000-0000-000000000001", 4)]
    assert notify.moment_of(payload) == 1795671034000000
    heard = [notify.Subscription(None, person=person) for person in (7, 77, None)]
    for each in heard:
        each.hear(payload)
    assert [notify.mark_of(7) in each._pending for each in heard] == [True, False, False]


def say(run: Run, text: str) -> None:
    Head.objects.filter(run_id=run.id).update(lease=uuid4())
    epoch = Head.objects.get(run_id=run.id).epoch
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_overheard (run_id, slot, attempt, epoch, text, characters, at) "
            "VALUES (%s, '0.1/1/0/0', 0, %s, %s, %s, clock_timestamp()) ON CONFLICT (run_id, slot) "
            "DO UPDATE SET text = excluded.text, characters = excluded.characters, at = excluded.at",
            [run.id, epoch, text, len(text)],
        )


async def saying(link: Link) -> list[dict[str, Any]]:
    while True:
        output = await link._app.receive_output(timeout=10)
        message = json.loads(output["text"])
        if "saying" in message:
            return message["saying"]  # type: ignore[no-any-return]


async def test_the_page_of_a_run_hears_it_grow_and_end_and_another_runs_page_does_not(operator: Reader) -> None:
    run, other = await database_sync_to_async(start)(), await database_sync_to_async(start)()
    link, beside = socket(operator, f"/ws/runs/{run.id}"), socket(operator, f"/ws/runs/{other.id}")
    assert await link.connect() and await beside.connect()
    await database_sync_to_async(say)(run, "Once")
    assert await saying(link) == [{"slot": "0.1/1/0/0", "text": "Once", "characters": 4}]
    await database_sync_to_async(say)(run, "Once <b>more</b>")
    assert (await saying(link))[0]["text"] == "Once <b>more</b>"
    await database_sync_to_async(lambda: Overheard.objects.all().delete())()
    assert await saying(link) == []
    assert await database_sync_to_async(lambda: Listener.objects.count())() == 2, "both are looked at"
    await database_sync_to_async(say)(other, "mine")
    assert (await saying(beside))[0]["text"] == "mine"
    await link.leave()
    await beside.leave()


async def test_all_pages_of_a_process_are_one_look_and_none_is_made_without_them() -> None:
    items: list[tuple[str, int]] = []
    enough = asyncio.Event()

    async def in_thread(act: Any, runs: list[UUID]) -> Any:
        items.append((act.__name__, len(runs)))
        if len(items) >= 6:
            enough.set()
        if len(items) == 3:
            raise OperationalError("away")
        return {}

    live_subscriptions = LiveSubscriptions(in_thread)
    async with (
        live_subscriptions.open(UUID(int=1)),
        live_subscriptions.open(UUID(int=1)),
        live_subscriptions.open(UUID(int=2)),
    ):
        await asyncio.wait_for(enough.wait(), 10)
    assert items[:4] == [("listen", 2), ("live_output_of", 2), ("live_output_of", 2), ("live_output_of", 2)], (
        "an outage is got over"
    )
    seen = len(items)
    await asyncio.sleep(0.1)
    assert len(items) <= seen + 1 and live_subscriptions._look is not None and live_subscriptions._look.done()


def test_a_page_has_a_place_for_it_and_none_of_it(reader: Callable[..., Reader]) -> None:
    run = start()
    say(run, "hello")
    text = reader("auditor").client.get(f"/runs/{run.id}").content.decode()
    assert 'id="saying"' in text and "hello" not in text


def test_what_came_while_a_page_was_read_is_read_again(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the page read the row before and the journal after, it would never show the change."""
    run, waits, moves = start(), families.open_waits, []
    before = Head.objects.get(run_id=run.id).seq

    def meanwhile(ids: Any) -> Any:
        if not moves:
            moves.append(lifecycle.pause(run.id, by=OLGA, justification="Hold on."))
        return waits(ids)

    monkeypatch.setattr(families, "open_waits", meanwhile)
    page = operator.get(f"/runs/{run.id}").content.decode()
    after = Head.objects.get(run_id=run.id).seq
    assert after > before and f'data-seq="{before}"' in page
    assert f'data-seq="{after}"' in operator.get(f"/runs/{run.id}", fragment="live").content.decode()
