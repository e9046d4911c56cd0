"""Certificates of keyed tools, from the results of probes.

Only the newest probe of a tool counts. If the tool has changed since, the result stays visible, because an upstream
system that ignores keys will keep ignoring them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from psycopg_pool import PoolTimeout

from durableagents.contrib.certify.models import Probe
from ledger.errors import first_line
from runs.backoff import Patience
from runs.engine.certification import NOT_PROBED, Certificate, Certificates, ProbeVerdict, Word
from runs.engine.fingerprint import tool_digest
from runs.engine.tools import Tool
from runs.journal.libpq import Pool

log = logging.getLogger(__name__)

CACHE_SECONDS = 5.0
_OUTAGES = (psycopg.Error, OSError, PoolTimeout)
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
# One row for each digest of a tool, however often it was probed: the newest one with a clear verdict, since an unclear
# verdict revokes nothing.
_NEWEST = f"""
    SELECT DISTINCT ON (tool, agent, made_of)
           {", ".join(f'"{name}"' for name in _COLUMNS)},
           extract(epoch FROM expires_at - clock_timestamp())::float8
    FROM runs_probe ORDER BY tool, agent, made_of, verdict = 'unclear', id DESC"""
_WORDS: dict[str, Word] = {
    Probe.Verdict.HONOURS: "certified",
    Probe.Verdict.IGNORES: "ignores_keys",
    Probe.Verdict.REFUSES: "refuses_repeats",
    Probe.Verdict.HOOK_DENIES: "hook_denies",
}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The newest probe of a tool, with the number of seconds for which its result was still valid on reading."""

    probe: Probe
    seconds: float

    @property
    def word(self) -> Word:
        return _WORDS.get(self.probe.verdict, "unclear")


def _authentic_results(rows: Iterable[Sequence[Any]]) -> list[ProbeResult]:
    """Return the results of the `_NEWEST` query, without rows that this installation did not write."""
    results = []
    for *values, seconds in rows:
        probe = Probe(**dict(zip(_COLUMNS, values, strict=True)))
        if probe.is_authentic:
            results.append(ProbeResult(probe, seconds))
        else:
            log.warning("a probe of %s by %s is ignored: this installation did not write it", probe.tool, probe.by)
    return results


def read_results() -> list[ProbeResult]:
    """Return the newest result of each tool, read in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST)
        return _authentic_results(cursor.fetchall())


def newest_result(results: Iterable[ProbeResult], agent: str, tool: Tool) -> ProbeResult | None:
    """Return the newest result of the tool in its current form, or else of an earlier form in the same agent."""
    named = sorted((each for each in results if each.probe.tool == tool.name), key=lambda x: x.probe.at, reverse=True)
    digest = tool_digest(tool)
    same = [each for each in named if each.probe.made_of == digest]
    return next(iter([*same, *(each for each in named if each.probe.agent == agent)]), None)


def standing_of(result: ProbeResult | None, tool: Tool, *, elapsed: float = 0.0) -> ProbeVerdict:
    """Return the verdict on a keyed tool from its newest result, which was read `elapsed` seconds ago."""
    if result is None:
        return NOT_PROBED
    word: Word = result.word
    if result.probe.made_of != tool_digest(tool):
        word = "changed"
    elif word == "certified" and result.seconds - elapsed <= 0:
        word = "expired"
    return ProbeVerdict(word, result.word, result.probe.expires_at)


def read_certificates() -> Callable[[str, Tool], Certificate]:
    """Read all results, and return a function that returns the certificate of an agent's keyed tool."""
    results = read_results()

    def certificate_of(agent: str, tool: Tool) -> Certificate:
        result = newest_result(results, agent, tool)
        certificate = standing_of(result, tool)
        if result is None:
            return Certificate(certificate)
        return Certificate(certificate, result.probe.told, result.probe.by, result.probe.at)

    return certificate_of


class CachedCertificates(Certificates):
    """A worker's certificates.

    The results are read again when they are a few seconds old, and at each unknown outcome.
    """

    def __init__(self, pool: Pool) -> None:
        super().__init__(settings.DURABLEAGENTS.uncertified_tools)
        self._pool = pool
        self._results: list[ProbeResult] = []
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        # Results with the verdict unsafe, by the tool's digest. A restored database may lack them, so they are kept
        # until a later probe.
        self._unsafe: dict[str, tuple[datetime, ProbeVerdict]] = {}

    async def standing(self, agent: str, tool: Tool, *, is_fresh: bool = False) -> ProbeVerdict:
        await self._read(time.monotonic() if is_fresh else time.monotonic() - CACHE_SECONDS)
        result = newest_result(self._results, agent, tool)
        digest = tool_digest(tool)
        earlier = self._unsafe.get(digest)
        if earlier is not None and (result is None or result.probe.at < earlier[0]):
            return earlier[1]
        self._unsafe.pop(digest, None)
        certificate = standing_of(result, tool, elapsed=time.monotonic() - self._read_at)
        if (certificate.is_unsafe or certificate.is_denier) and result is not None:
            self._unsafe[digest] = (result.probe.at, certificate)
        return certificate

    async def _read(self, since: float) -> None:
        """Load results, unless they were read at `since` (monotonic) or later.

        Waits through an outage of the database, because without results nothing may be sent.
        """
        patience = Patience()
        while self._read_at < since:
            async with self._reading:
                if self._read_at >= since:
                    return
                began = time.monotonic()
                try:
                    async with self._pool.connection() as link:
                        rows = await (await link.execute(_NEWEST)).fetchall()
                    self._results, self._read_at = _authentic_results(rows), began
                    return
                except _OUTAGES as error:
                    log.warning("results of probes can't be read (%s); trying again", first_line(error))
            await asyncio.sleep(patience.seconds())
