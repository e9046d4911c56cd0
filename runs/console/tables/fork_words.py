"""Forks in words: of which run, by which way, and what stood for a call."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from ledger.templatetags.console import short, visible
from runs.console.tables.links import to_run

HOW = {"fork": "a fork", "what_if": "a what-if", "start_again": "started again from the input"}
_STOOD = {
    "consent": "a person said so here",
    "audit": "a person said so before the run began",
    "what_if": "nothing is sent in a what-if",
    "given": "as it was given to the what-if",
}


def _run(run_id: object) -> str:
    return to_run(str(run_id), f"<code>{visible(short(run_id))}</code>")


def _at(visit: object) -> str:
    return f" at visit {escape(str(visit))}" if visit else ""


def how(word: object) -> str:
    """By which way it began again."""
    return visible(HOW.get(str(word), str(word)))


def forked(f: Mapping[str, Any], attempt: int = 0) -> str:
    """Whose fork it is."""
    n = f["effects"]
    many = f"{escape(str(n))} effect{'' if n == 1 else 's'}"
    return f"{how(f['how'])} of {_run(f['origin'])}{_at(f['visit'])} · told of {many}"


def fork_made(f: Mapping[str, Any], attempt: int = 0) -> str:
    """Which run began again."""
    return f"{_run(f['fork'])} is {how(f['how'])}{_at(f['visit'])} · by {visible(f['by'])}"


def taken_over(f: Mapping[str, Any], attempt: int = 0) -> str:
    """What stood for a call."""
    why = visible(_STOOD.get(str(f["how"]), str(f["how"])))
    named = f" {visible(f['external_id'])}" if f.get("external_id") else ""
    at = f" · on record at {visible(f['of_slot'])} of {_run(f['of_run'])}" if f["of_slot"] else ""
    return f"<code>{visible(f['tool'])}</code>{named} · nothing was sent: {why}{at}"
