"""Acts that a repeat under the same `Idempotency-Key` doesn't do again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from runs.services import idempotency


def answered_once(request: Request, asked: Any, act: Callable[[], tuple[int, Any]]) -> HttpResponse:
    """What `act` gives, as status and row; where the request has a key, the same bytes each time it comes. `asked` is
    what a repeat has to ask for again, plain data. Raises ParseError for a key that is none, KeyInUse, KeyReused, and
    what `act` raises."""
    key = idempotency.key_from(request.headers.get("Idempotency-Key"))
    if key is None:
        status, answer = act()
        return Response(answer, status=status)
    status, text = idempotency.answer_once(f"user:{request.user.pk}", key, asked, act)
    return HttpResponse(text, status=status, content_type="application/json")
