"""What a page says of a run under a halt."""

from __future__ import annotations

from django.urls import reverse

from ledger.templatetags.console import clock, visible
from runs.console.run_page import Dossier
from runs.queries.halts import Halted
from runs.queries.run_list import Card


def sentence(d: Dossier) -> str:
    """Of one that wants driving: this is why nobody does."""
    return f"{_halted(d.halted)} It goes on within seconds when that is lifted; until then it holds no worker."


def beside(d: Dossier) -> str:
    """Of one that is driven, or waits: what the halt means for it. Empty where there is none."""
    if d.halted is None or d.look == "halted":
        return ""
    if d.run.owner is not None:
        return f" {_halted(d.halted)} It stops at its next step."
    return f" {_halted(d.halted)} What it waits for may come, its deadlines stand still, and nothing is sent."


def row(card: Card) -> str:
    """For its row in a list."""
    return f"<b>{visible(card.halted.what)}</b>" if card.halted else ""


def in_list(card: Card) -> str:
    """Beside what its row says."""
    return f" · <b>halted: {visible(card.halted.what)}</b>" if card.halted and card.look != "halted" else ""


def _halted(halted: Halted | None) -> str:
    if halted is None:
        return "It was halted a moment ago."
    page = reverse("halts")
    return (
        f'<b>Halted:</b> <a href="{page}">{visible(halted.what)}</a>, by <b>{visible(halted.by)}</b> since'
        f" {clock(halted.since)}: {visible(halted.why.removesuffix('.'))}."
    )
