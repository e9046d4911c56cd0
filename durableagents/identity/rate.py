"""Limit the rate of API keys in each web process: a burst of one minute's requests, refilled evenly."""

from __future__ import annotations

import threading
from collections import OrderedDict
from math import ceil
from time import monotonic
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from durableagents.models import ApiKey
from durableagents.server import AGAIN

WINDOW_SECONDS = 60.0
_MAX_KEYS = 10_000
_full_at: OrderedDict[int, float] = OrderedDict()  # the time when the allowance of each key is full again
_lock = threading.Lock()


class KeyRate(BaseThrottle):
    """Refuses requests of a key beyond DURABLEAGENTS_RATE_LIMIT a minute.

    Sessions belong to people and aren't limited.
    """

    _wait_seconds = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        limit: int = settings.DURABLEAGENTS.rate_limit
        # The server repeats the request of a waiting client. Such a repetition doesn't count as a request of the
        # client.
        if not limit or not isinstance(request.auth, ApiKey) or getattr(request, "scope", {}).get(AGAIN):
            return True
        now, interval = monotonic(), WINDOW_SECONDS / limit
        with _lock:
            full_at = max(now, _full_at.get(request.auth.pk, now))
            self._wait_seconds = full_at + interval - now - WINDOW_SECONDS
            is_allowed = self._wait_seconds <= 0.001
            if is_allowed:
                full_at += interval
                _full_at[request.auth.pk] = full_at
                _full_at.move_to_end(request.auth.pk)
                if len(_full_at) > _MAX_KEYS:
                    _full_at.popitem(last=False)
        view.rate_headers = {
            "RateLimit-Limit": str(limit),
            "RateLimit-Remaining": str(int((WINDOW_SECONDS - (full_at - now)) / interval + 0.001)),
            "RateLimit-Reset": str(ceil(full_at - now)),
        }
        return is_allowed

    def wait(self) -> float:
        return ceil(self._wait_seconds)
