"""A few requests run at a time; no kind blocks the others, and no slot is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from django.conf import settings

from durableagents.server import admission
from durableagents.server.admission import SLOTS, Admission
from tests.cases import each_case

KEY = [(b"authorization", b"Bearer x")]
COOKIE = [(b"cookie", b"a=b; " + settings.SESSION_COOKIE_NAME.encode() + b"=x")]


class Hall:
    """An application that works until released, and notes its requests."""

    def __init__(self, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        self.inside: list[str] = []
        self.most = 0
        self.let_go = asyncio.Event()
        self._start = {"type": "http.response.start", "status": status, "headers": headers or []}
        self.admission = Admission(self)
        self.told: Counter[tuple[str, int]] = Counter()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.inside.append(scope["path"])
        self.most = max(self.most, len(self.inside))
        try:
            await self.let_go.wait()
            await send(self._start)
        finally:
            self.inside.remove(scope["path"])

    def ask(
        self, path: str, headers: list[tuple[bytes, bytes]] = KEY, address: str = "192.0.2.1"
    ) -> asyncio.Task[None]:
        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.told[path, message["status"]] += 1
                if message["status"] == 503:
                    assert dict(message["headers"])[b"retry-after"]

        scope = {"type": "http", "path": path, "headers": headers, "client": (address, 1)}
        return asyncio.create_task(self.admission(scope, None, send))  # type: ignore[arg-type]

    def is_empty(self) -> bool:
        lanes = self.admission.lanes.values()
        return self.admission._running == 0 and all(lane.running == 0 and not lane.waiting for lane in lanes)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_no_more_than_the_slots_are_worked_on_and_all_get_their_turn() -> None:
    hall = Hall()
    items = [hall.ask(f"/{n}") for n in range(100)]
    await settle()
    assert len(hall.inside) == SLOTS - 1
    hall.let_go.set()
    await asyncio.gather(*items)
    assert hall.most == SLOTS - 1 and hall.told.total() == 100 and hall.is_empty()
    assert {status for _, status in hall.told} == {200}


async def test_no_kind_keeps_the_others_out() -> None:
    hall = Hall()
    crowd = [hall.ask("/login", []) for _ in range(50)]
    await settle()
    assert hall.inside == ["/login"] * 2
    guests = [
        hall.ask("/api/v1/runs"),
        hall.ask("/runs", COOKIE),
        hall.ask("/api/v1/callbacks/x", []),
        hall.ask("/readyz", []),
    ]
    await settle()
    assert set(hall.inside) == {"/login", "/api/v1/runs", "/runs", "/api/v1/callbacks/x", "/readyz"}
    hall.let_go.set()
    await asyncio.gather(*crowd, *guests)
    assert hall.is_empty()


async def test_who_waits_too_long_is_told_that_it_is_busy_and_takes_no_place() -> None:
    hall = Hall()
    for lane in hall.admission.lanes.values():
        lane.patience_seconds = 0.05
    first = [hall.ask("/a") for _ in range(SLOTS - 1)]
    await settle()
    late = [hall.ask("/b") for _ in range(5)]
    await asyncio.gather(*late)
    assert hall.told == {("/b", 503): 5}
    hall.let_go.set()
    await asyncio.gather(*first)
    assert hall.is_empty()
    await hall.ask("/c")
    assert hall.told["/c", 200] == 1


async def test_a_queue_that_is_too_long_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_WAITING", 3)
    hall = Hall()
    items = [hall.ask("/a") for _ in range(SLOTS - 1 + 3 + 4)]
    await settle()
    assert hall.told == {("/a", 503): 4}
    hall.let_go.set()
    await asyncio.gather(*items)
    assert hall.told["/a", 200] == SLOTS + 2 and hall.is_empty()


@each_case("seed", range(20))
async def test_disconnects_release_the_connection_slot(seed: int) -> None:
    """Cancelled inside, in the queue, or while being admitted."""
    import random

    chance, hall = random.Random(seed), Hall()
    for lane in hall.admission.lanes.values():
        lane.patience_seconds = chance.choice([0.0, 0.001, 5.0])
    items = [hall.ask("/a", chance.choice([KEY, []])) for _ in range(60)]
    for _ in range(60):
        chance.choice(items).cancel()
        if chance.random() < 0.3:
            hall.let_go.set()
        await asyncio.sleep(0)
    hall.let_go.set()
    await asyncio.gather(*items, return_exceptions=True)
    assert hall.is_empty()


@pytest.mark.parametrize(("status", "headers"), [(401, []), (302, [(b"Location", b"/login?next=/")])])
async def test_an_address_that_brought_a_false_key_goes_to_the_back_for_a_while(
    monkeypatch: pytest.MonkeyPatch, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    hall = Hall(status, headers)
    hall.let_go.set()
    await hall.ask("/a")
    hall.let_go.clear()
    crowd = [hall.ask("/a") for _ in range(20)]
    honest = hall.ask("/b", address="192.0.2.2")
    await settle()
    assert sorted(hall.inside) == ["/a", "/a", "/b"], "it has the lane of those who say nothing, and others have theirs"
    hall.let_go.set()
    await asyncio.gather(*crowd, honest)
    monkeypatch.setattr(admission, "monotonic", lambda: 1e12)
    assert not hall.admission._doubted.has(b"192.0.2.1") and hall.is_empty()


async def test_a_key_that_was_true_is_known_whatever_its_neighbours_bring() -> None:
    hall = Hall()
    hall.let_go.set()
    await hall.ask("/api/v1/runs", KEY)
    for path in ("/static/x.css", "/login", "/api/v1/callbacks/x"):
        await hall.ask(path, [(b"authorization", b"Bearer forged")])
    hall.admission._doubted.note(b"192.0.2.1")
    hall.let_go.clear()
    forged = [hall.ask("/forged", [(b"authorization", b"Bearer forged")]) for _ in range(10)]
    true = [hall.ask("/true", KEY) for _ in range(4)]
    await settle()
    assert Counter(hall.inside) == {"/forged": 2, "/true": 4}, "an answer that asks nobody who he is proves nothing"
    hall.let_go.set()
    await asyncio.gather(*forged, *true)
    assert hall.is_empty() and KEY[0][1] not in repr(vars(hall.admission._proven)).encode()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_MAX_REMEMBERED", 10)
    known = admission.Remembered(60)
    for n in range(100):
        known.note(b"%d" % n)
    assert len(known._until) == 10 and known.has(b"99") and not known.has(b"0")
