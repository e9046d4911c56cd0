"""Errors as the sandbox says them: RFC 9457 problem details, worded in one place."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class Problem(Exception):
    """A request that is refused; becomes the HTTP answer as it stands."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = headers or {}

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.field is not None:
            shown["field"] = self.field
        return shown


def wrong(field: str, detail: str) -> Problem:
    """One field is to blame."""
    return Problem(422, f"{field}: {detail}", field=field)


def malformed(detail: str) -> Problem:
    return Problem(400, detail)


def key_missing() -> Problem:
    return Problem(400, "this operation needs an Idempotency-Key header", field="Idempotency-Key")


def key_used_with_other_body() -> Problem:
    return Problem(422, "this Idempotency-Key was used with another body", field="Idempotency-Key")


def key_in_progress() -> Problem:
    detail = "a request under this Idempotency-Key is still in progress: ask again for its answer"
    return Problem(409, detail, field="Idempotency-Key", headers={"Retry-After": "1"})


def injected() -> Problem:
    return Problem(503, "injected error: nothing was done", headers={"Retry-After": "0"})


def refused() -> Problem:
    return Problem(403, "refused, as the fault says: nothing was done")


def store_unavailable() -> Problem:
    return Problem(503, "the sandbox's store can't be written: nothing was done", headers={"Retry-After": "1"})
