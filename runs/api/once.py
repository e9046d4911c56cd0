"""Answer repeated requests with an `Idempotency-Key` without acting again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import Proposed
from ledger.web.problems import waiting
from runs.services import idempotency

_WAITS = 202
REPLAYED = {"Idempotent-Replayed": "true"}


def answered_once(request: Request, body: Any, act: Callable[[], tuple[int, Any]]) -> HttpResponse:
    """Return the response of `act`; for a request with a key, the same bytes each time.
    A repeated request must have the same `body`, as plain data. The response to a change that waits for a second person
    is stored too. Raises ParseError for an invalid key, KeyInUse, KeyReused, and the errors of `act`."""
    key = idempotency.key_from(request.headers.get("Idempotency-Key"))
    if key is None:
        status, answer = act()
        return Response(answer, status=status)

    is_first = False

    def acting() -> tuple[int, Any]:
        nonlocal is_first
        is_first = True
        try:
            return act()
        # not raised, because an error would roll back the proposal together with this transaction
        except Proposed as proposed:
            return _WAITS, waiting(proposed)[0]

    status, text = idempotency.answer_once(f"user:{request.user.pk}", key, body, acting)
    headers = (_headers(text) if status == _WAITS else {}) | ({} if is_first else REPLAYED)
    return HttpResponse(text, status=status, headers=headers, content_type="application/json")


def _headers(text: bytes) -> dict[str, str]:
    """Return the headers of a response to a change that waits for a second person."""
    data = json.loads(text)
    return waiting(Proposed(UUID(data["change"])))[1] if "change" in data else {}
