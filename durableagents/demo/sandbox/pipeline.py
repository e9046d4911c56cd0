"""One request from receipt to answer. The order is the contract:

1. the receipt is on disk, 2. the key is claimed, 3. faults strike, 4. the body is checked, 5. effect, stored answer and ``executed``
commit together, 6. the answer leaves, or the connection is cut.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from .effects import Receipt, is_run_id, mark_executed, now, sender_of, sha256, to_json
from .faults import FaultBook, endure
from .operations import Effect, Read
from .store import Store
from .web import wire
from .web.fields import Fields, Key, read_object
from .web.wire import BodyTooLarge, Cut, Problem, bounded_body, json_answer, problem_answer

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_NO_BODY = sha256(b"")


@dataclass(frozen=True)
class Stored:
    """Result stored for an idempotency key: the status and the exact text of the answer."""

    status: int
    answer: str
    is_replay: bool


@dataclass(frozen=True)
class Received:
    """A request whose receipt is on disk."""

    id: int
    receipt: Receipt
    body: bytes

    @property
    def key(self) -> str:
        if self.receipt.idempotency_key is None:
            raise wire.key_missing()
        return self.receipt.idempotency_key


class Asked(Fields):
    """The query of a client that wants to know what a key did."""

    idempotency_key: Key


class Claims:
    """The keys with a request in progress. Kept in memory only, because none is in progress after a restart."""

    def __init__(self) -> None:
        self._held: set[tuple[str, str, str]] = set()

    @contextmanager
    def hold(self, effect: Effect, key: str) -> Iterator[None]:
        """Hold a key during a request. Raises Problem 409 if another request holds it."""
        self.refuse_if_held(effect, key)
        claim = (effect.system, effect.name, key)
        self._held.add(claim)
        try:
            yield
        finally:
            self._held.discard(claim)

    def refuse_if_held(self, effect: Effect, key: str) -> None:
        if (effect.system, effect.name, key) in self._held:
            raise wire.key_in_progress()


class Pipeline:
    """Serves the operations; ``on_effect`` is called after each commit of an effect."""

    def __init__(self, store: Store, faults: FaultBook, on_effect: Callable[[Effect], None]) -> None:
        self._store = store
        self._faults = faults
        self._on_effect = on_effect
        self._claims = Claims()

    async def read(self, read: Read, request: Request) -> Response:
        try:
            received = await self._receive(read.system, read.name, request)
            await self._meet_faults(received.receipt)
            return json_answer(read.answer(request.query_params))
        except Problem as problem:
            return problem_answer(problem)

    async def find(self, effect: Effect, request: Request) -> Response:
        """Return the result of a key.

        The answer is 409 while its request is in progress, since the effect may or may not happen.
        """
        try:
            received = await self._receive(effect.system, effect.found_by, request)
            await self._meet_faults(received.receipt)
            key = Asked.read(request.query_params).idempotency_key
            self._claims.refuse_if_held(effect, key)
            stored = await self._store.read(lambda connection: _stored(connection, effect, key))
            answers = f"[{stored['answer']}]" if stored else "[]"
            return Response(f'{{"results":{answers}}}', media_type="application/json")
        except Problem as problem:
            return problem_answer(problem)

    async def effect(self, effect: Effect, request: Request) -> Response:
        try:
            received = await self._receive(effect.system, effect.name, request)
            with self._claims.hold(effect, received.key):
                await self._meet_faults(received.receipt)
                wanted = effect.asks.read(read_object(received.body))
                stored = await self._store.write(lambda connection: _once(connection, effect, received, wanted))
        except Problem as problem:
            return problem_answer(problem)
        if not stored.is_replay:
            self._on_effect(effect)
            if self._faults.meeting(effect.system, effect.name).strikes_after:
                return Cut()
        headers = {"Idempotent-Replayed": "true"} if stored.is_replay else None
        return Response(stored.answer, stored.status, headers, media_type="application/json")

    async def _receive(self, system: str, operation: str, request: Request) -> Received:
        """Record the request, even if its headers or size are then refused."""
        key, run_id = request.headers.get("idempotency-key"), request.headers.get("x-run-id")
        sender, sent_at = sender_of(request.headers.get("x-sender"))
        too_large: BodyTooLarge | None = None
        try:
            body = await bounded_body(request)
        except BodyTooLarge as error:
            body, too_large = b"", error
        receipt = Receipt(
            system=system,
            operation=operation,
            idempotency_key=key if key is not None and _KEY.fullmatch(key) else None,
            body_sha256=None if too_large else sha256(body) if body else _NO_BODY,
            run_id=run_id if run_id is not None and is_run_id(run_id) else None,
            received_at=now(),
            sender=sender,
            sent_at=sent_at,
        )
        request_id = await self._store.write(receipt.record)
        if too_large:
            raise too_large
        _refuse_bad_headers(receipt, key, run_id)
        return Received(request_id, receipt, body)

    async def _meet_faults(self, receipt: Receipt) -> None:
        fault = self._faults.meeting(receipt.system, receipt.operation)
        if await endure(fault):
            raise wire.injected()
        if fault.refuses:
            raise wire.refused()


def _refuse_bad_headers(receipt: Receipt, key: str | None, run_id: str | None) -> None:
    if key is not None and receipt.idempotency_key is None:
        raise Problem(
            400,
            "must be 1 to 255 printable ASCII characters without spaces",
            field="Idempotency-Key",
        )
    if run_id is not None and receipt.run_id is None:
        raise Problem(400, "must be 1 to 200 printable ASCII characters without spaces", field="X-Run-Id")


def _stored(connection: sqlite3.Connection, effect: Effect, key: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(
        "SELECT body_sha256, status, answer FROM keys WHERE system = ? AND operation = ? AND key = ?",
        (effect.system, effect.name, key),
    ).fetchone()
    return row


def _once(connection: sqlite3.Connection, effect: Effect, received: Received, wanted: Fields) -> Stored:
    """Perform the effect, store its answer and mark the request as executed; or return the answer stored earlier."""
    receipt = received.receipt
    before = _stored(connection, effect, received.key)
    if before is not None:
        if before["body_sha256"] != receipt.body_sha256:
            raise wire.key_used_with_other_body()
        return Stored(before["status"], before["answer"], is_replay=True)
    answer = to_json(effect.perform(connection, wanted, receipt))
    connection.execute(
        "INSERT INTO keys (system, operation, key, body_sha256, status, answer, request_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            effect.system,
            effect.name,
            received.key,
            receipt.body_sha256,
            effect.status,
            answer,
            received.id,
        ),
    )
    mark_executed(connection, received.id)
    return Stored(effect.status, answer, is_replay=False)
