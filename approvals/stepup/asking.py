"""Asking whoever decides on a page to show once more who they are. Sign-in, which lies above this app, says how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from approvals.passkeys.signed import Signed
from runs.engine.gate.proof import Wanted


@dataclass(frozen=True, slots=True)
class Answer:
    """`page` is what whoever showed something wrong is answered; without it the form goes on, with what a passkey
    signed for it, if one did."""

    page: HttpResponse | None = None
    signed: Signed | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """`ask` gives the page that asks, in which what somebody sent is kept; None where they have nothing that would do.
    `answer` looks at a form that came back from there. The text ends the sentence "Show once more who you are, to …";
    the terms are what a passkey would sign (passkeys/signed.py)."""

    ask: Callable[[HttpRequest, str, Wanted, dict[str, Any]], HttpResponse | None]
    answer: Callable[[HttpRequest, str, dict[str, Any]], Answer]


askers: list[Asker] = []


def ask(request: HttpRequest, what: str, wanted: Wanted, terms: dict[str, Any]) -> HttpResponse | None:
    """The page that asks; None where nothing that its reader has would do."""
    return askers[0].ask(request, what, wanted, terms) if askers else None


def answer(request: HttpRequest, what: str, terms: dict[str, Any]) -> Answer:
    """The page again where what was shown with a form is not right; otherwise the form goes on without it."""
    return askers[0].answer(request, what, terms) if askers else Answer()
