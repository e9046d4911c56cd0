"""Asking whoever decides on a page to show once more who they are. Sign-in, which lies above this app, says how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from runs.engine.gate.proof import Wanted


@dataclass(frozen=True, slots=True)
class Asker:
    """`ask` gives the page that asks, in which what somebody sent is kept; None where they have nothing that would do.
    `answer` looks at a form that came back from there: None where nothing was shown with it, or what was right.
    The text ends the sentence "Show once more who you are, to …"."""

    ask: Callable[[HttpRequest, str, Wanted], HttpResponse | None]
    answer: Callable[[HttpRequest, str], HttpResponse | None]


askers: list[Asker] = []


def ask(request: HttpRequest, what: str, wanted: Wanted) -> HttpResponse | None:
    """The page that asks; None where nothing that its reader has would do."""
    return askers[0].ask(request, what, wanted) if askers else None


def answer(request: HttpRequest, what: str) -> HttpResponse | None:
    """The page again where what was shown with a form is not right; otherwise the form goes on without it."""
    return askers[0].answer(request, what) if askers else None
