"""Marks of start forms.
A mark is the id of a form. Each mark starts only one run, however often its form is sent. Marks are signed for one
person and are part of the page's URL, so that Back and Reload show the same form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4, uuid5

from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.http import HttpRequest

from ledger.errors import DurableAgentsError, InvalidInput
from runs.services.idempotency import KeyInUse, KeyReused, answer_once, kept_answer


class NotOurForm(InvalidInput):
    """The form's hidden identifier was changed, so that a repeated request couldn't be recognized."""

    def __init__(self, done: str = "started by it", look: str = "check the list of runs first") -> None:
        super().__init__(
            f"The form's hidden identifier is missing or was changed. Nothing was {done}. "
            f"Your input is kept below. If you have sent it before, {look}."
        )


class FormUsed(DurableAgentsError):
    """The form has already started a run with other values.
    With the mark `further`, the new values can start another run."""

    status, code, title = 409, "form-used", "This form has already started a run"

    def __init__(self, further: UUID) -> None:
        super().__init__(
            "This form has already started a run with other values. You can start another run with the new values."
        )
        self.further = further


class FormInUse(DurableAgentsError):
    """The same form was sent a moment ago and is still in progress."""

    status, code, title = 409, "form-in-use", "Still in progress"

    def __init__(self) -> None:
        super().__init__("This form is still being processed. You can send it again without acting twice.")


def token_of(request: HttpRequest, mark: UUID) -> str:
    return _signer(request).sign(str(mark))


def mark_in(request: HttpRequest, token: str) -> UUID | None:
    """Return the mark if it was issued to this person, else None."""
    try:
        return UUID(_signer(request).unsign(token))
    except BadSignature:
        return None


def new_mark() -> UUID:
    return uuid4()


def run_of(request: HttpRequest, mark: UUID) -> UUID | None:
    """Return the run that this person started with the form that has this mark."""
    answer = kept_answer(_principal(request), str(mark))
    return UUID(json.loads(answer)["id"]) if answer is not None else None


def start_once(request: HttpRequest, mark: UUID, body: Any, start: Callable[[], UUID]) -> tuple[UUID, bool]:
    """Return the form's run, and whether it is new: a form that is sent twice starts one run.
    `body` is plain data. Raises FormUsed, FormInUse, and the errors of `start`."""
    try:
        return do_once(request, mark, body, start)
    except KeyReused:
        # A browser that goes back to the refusal sends the same values again.
        further = _further(mark, body)
        if (run_id := run_of(request, further)) is not None:
            return run_id, False
        raise FormUsed(further) from None


def do_once(request: HttpRequest, mark: UUID, body: Any, act: Callable[[], UUID]) -> tuple[UUID, bool]:
    """Return the id of the object that `act` made, and whether this request made it.
    Raises KeyReused if the values differ, FormInUse, and the errors of `act`."""
    is_new = False

    def acting() -> tuple[int, Any]:
        nonlocal is_new
        is_new = True
        return 201, {"id": str(act())}

    try:
        with transaction.atomic():
            _, answer = answer_once(_principal(request), str(mark), body, acting)
    except KeyInUse:
        raise FormInUse() from None
    return UUID(json.loads(answer)["id"]), is_new


def _further(mark: UUID, body: Any) -> UUID:
    """Return a mark for the new values of a form that was already used. The same values always get the same mark."""
    return uuid5(mark, hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest())


def _principal(request: HttpRequest) -> str:
    return f"console {request.user.pk}"


def _signer(request: HttpRequest) -> Signer:
    return Signer(salt=f"runs.console.start {request.user.pk}")
