"""Sockets relay sequence numbers, nothing else: content comes from the pages, through the one path that checks who reads.

Messages are `{"run": id, "seq": n}`; `{"run": null, "seq": 0}` says that rings may have been missed, so read again. A socket closes
with 4401 when its session has ended and 4403 when its user has no role any more, within `CHECK_SECONDS`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError
from django.utils.crypto import constant_time_compare

from ledger.access import roles
from ledger.models import Head
from runs.live import hub

CHECK_SECONDS = 3.0
SIGNED_OUT, NOT_ALLOWED, NO_SUCH_RUN, BROKEN = 4401, 4403, 4404, 1011
log = logging.getLogger(__name__)


class LiveConsumer(AsyncWebsocketConsumer):
    """Rings of all runs, or of the one that the address names."""

    _tasks: list[asyncio.Task[None]]

    async def connect(self) -> None:
        self._tasks = []
        run_id: UUID | None = self.scope["url_route"]["kwargs"].get("run_id")
        verdict = await self._verdict()
        # Closing before accepting would hide the reason behind a plain 403.
        await self.accept()
        if verdict is not None:
            await self.close(verdict)
            return
        seq = 0
        if run_id is not None:
            found = await database_sync_to_async(_seq)(run_id)
            if found is None:
                await self.close(NO_SUCH_RUN)
                return
            seq = found
        self._tasks = [asyncio.create_task(self._keep(part)) for part in (self._relay(run_id, seq), self._guard())]

    async def disconnect(self, code: int) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing that a page says is of interest."""

    async def _keep(self, part: Coroutine[Any, Any, None]) -> None:
        """A socket of which one half has died would be silently stale: close it, and the page opens another."""
        try:
            await part
        except Exception:
            log.exception("a live socket broke")
            await self.close(BROKEN)

    async def _relay(self, run_id: UUID | None, seq: int) -> None:
        async with hub.subscribe(run_id) as rings:
            await self._tell(run_id, seq)
            async for ring in rings:
                await (self._tell(None, 0) if ring is None else self._tell(*ring))

    async def _tell(self, run_id: UUID | str | None, seq: int) -> None:
        await self.send(text_data=json.dumps({"run": str(run_id) if run_id else None, "seq": seq}))

    async def _guard(self) -> None:
        """Whoever signed out or lost their role stops listening, even on a page that stays open."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                verdict = await self._verdict()
            except DatabaseError:
                continue  # nobody can sign out while the database is away; asked again as soon as it is back
            if verdict is not None:
                await self.close(verdict)
                return

    async def _verdict(self) -> int | None:
        """Why this socket may not be open, as a close code; None if it may."""
        session = self.scope.get("session")
        key = session.session_key if session is not None else None
        return await database_sync_to_async(verdict_on)(key)


def verdict_on(session_key: str | None) -> int | None:
    """Look the session up again: signed in, password unchanged, active, and with a role."""
    if not session_key:
        return SIGNED_OUT
    kept: dict[str, Any] = SessionStore(session_key).load()
    user = get_user_model().objects.filter(pk=str(kept[SESSION_KEY]), is_active=True).first() if SESSION_KEY in kept else None
    if user is None or kept.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return SIGNED_OUT
    if not constant_time_compare(str(kept.get(HASH_SESSION_KEY, "")), user.get_session_auth_hash()):
        return SIGNED_OUT
    return None if roles(user) else NOT_ALLOWED


def _seq(run_id: UUID) -> int | None:
    return Head.objects.filter(run_id=run_id).values_list("seq", flat=True).first()
