"""Probe results and what they say of a tool today. The newest probe of the current tool counts; rows without this
installation's code don't. Results of a changed tool or an expired certificate are still shown: an upstream system
that ignores keys will keep ignoring them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from runs.engine.certification import NOT_PROBED, Standing, Word
from runs.engine.fingerprint import tool_digest
from runs.engine.tools import Tool
from runs.models import Probe

log = logging.getLogger("runs.certification")

_COLUMNS = (
    "tool",
    "agent",
    "version",
    "made_of",
    "verdict",
    "told",
    "evidence_digest",
    "by",
    "host",
    "at",
    "expires_at",
    "code",
)
# One row for each tool as it was made, however often it was probed: the newest that told anything, for one that told
# nothing takes nothing back.
NEWEST = f"""
    SELECT DISTINCT ON (tool, agent, made_of)
           {", ".join(f'"{name}"' for name in _COLUMNS)},
           extract(epoch FROM expires_at - clock_timestamp())::float8
    FROM runs_probe ORDER BY tool, agent, made_of, verdict = 'unclear', id DESC"""


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a tool's newest probe, and the seconds for which it is valid."""

    tool: str
    agent: str
    made_of: str
    verdict: str
    told: str
    by: str
    at: datetime
    expires_at: datetime
    seconds: float

    @property
    def word(self) -> Word:
        return _WORDS.get(self.verdict, "unclear")


_WORDS: dict[str, Word] = {
    Probe.Verdict.HONOURS: "certified",
    Probe.Verdict.IGNORES: "ignores_keys",
    Probe.Verdict.REFUSES: "refuses_repeats",
    Probe.Verdict.HOOK_DENIES: "hook_denies",
}


def found_in(rows: Iterable[Sequence[Any]]) -> list[Found]:
    """Return the results in rows of `NEWEST` that this installation wrote."""
    found = []
    for *values, seconds in rows:
        row = Probe(**dict(zip(_COLUMNS, values, strict=True)))
        if not row.is_genuine:
            log.warning(
                "a probe of %s by %s isn't taken: it was not written with this installation's key", row.tool, row.by
            )
            continue
        found.append(
            Found(row.tool, row.agent, row.made_of, row.verdict, row.told, row.by, row.at, row.expires_at, seconds)
        )
    return found


def newest() -> list[Found]:
    """Return the recorded results, read in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(NEWEST)
        return found_in(cursor.fetchall())


def about(found: Iterable[Found], agent: str, tool: Tool) -> Found | None:
    """The newest that was found of a tool as it is; else of this agent's tool of that name, as it was before."""
    named = sorted((each for each in found if each.tool == tool.name), key=lambda each: each.at, reverse=True)
    made_of = tool_digest(tool)
    same = [each for each in named if each.made_of == made_of]
    return next(iter([*same, *(each for each in named if each.agent == agent)]), None)


def standing_of(found: Iterable[Found], agent: str, tool: Tool, *, elapsed: float = 0.0) -> Standing:
    """Return the certification status of an agent's keyed tool (by name), `elapsed` seconds after it was read."""
    newest_of = about(found, agent, tool)
    if newest_of is None:
        return NOT_PROBED
    if newest_of.made_of != tool_digest(tool):
        return Standing("changed", newest_of.word, newest_of.expires_at)
    if newest_of.word == "certified" and newest_of.seconds - elapsed <= 0:
        return Standing("expired", newest_of.word, newest_of.expires_at)
    return Standing(newest_of.word, newest_of.word, newest_of.expires_at)


def keep(probe: Probe) -> None:
    """Put a probe on record, with this installation's code."""
    probe.seal()
    probe.save(force_insert=True)
