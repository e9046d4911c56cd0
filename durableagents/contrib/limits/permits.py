"""The permits of one worker.

A permit is requested from the database for one attempt of a call, and returned after the attempt. Of the calls that
wait under the same keys, only the first sends requests. Keys without a limit cost nothing, because rules are cached."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import logging
import random
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg
from django.conf import settings
from psycopg_pool import PoolTimeout

from durableagents.contrib.limits.protected import LIMIT
from ledger.errors import first_line
from ledger.protected import is_authentic
from runs.backoff import Patience
from runs.engine.agents import registry
from runs.engine.limits import Limits, Permit, PermitRequest, Refused, Rule, TryResult
from runs.journal.libpq import Pool
from runs.services.wakeups import CHANNEL

log = logging.getLogger("durableagents.limits")

NOTIFICATION_PREFIX = "limit:"
REFRESH_SECONDS = 1.0
# Successes are reported in batches, and less often while no key has failures.
REPORT_SECONDS, WATCHFUL_REPORT_SECONDS = 5.0, 0.5
# A call that was refused before is queued as if it had waited this long for each refusal, so that it precedes new
# calls.
REFUSAL_SECONDS = 60.0
# Reads all keys with rules or failures in one statement, since each worker does so every second. The statement must
# agree with `runs_limit_rule`.
READ_RULES = """
    WITH pattern AS MATERIALIZED (
        SELECT left(key, -1) AS stem, coalesce(given, declared) AS rule FROM runs_limit
        WHERE key LIKE '%%*' AND coalesce(given, declared) IS NOT NULL
    )
    SELECT l.key, coalesce(l.of_tool, '{}') || coalesce((
               SELECT p.rule FROM pattern p WHERE starts_with(l.key, p.stem) AND l.key <> p.stem || '*'
               ORDER BY length(p.stem) DESC LIMIT 1), '{}') || coalesce(l.given, l.declared, '{}'),
           l.breaker, greatest(0, extract(epoch FROM l.held_until - clock_timestamp()))::float8,
           l.failed + l.failed_before > 0, l.given::text, l.given_by, l.given_at
    FROM runs_limit l
    WHERE coalesce(l.given, l.declared, l.of_tool) IS NOT NULL OR l.breaker = 'open' OR l.held_until > clock_timestamp()
       OR l.failed + l.failed_before > 0"""
_DECLARE = "SELECT runs_declare_limits(%s::jsonb, %s::jsonb)"
# The rules that people set, with the codes that prove that the application wrote them. They are read again only after a
# change.
_READ_PROOFS = f"""
    SELECT t.key, t.given, {LIMIT.proof_sql("t")}::text FROM runs_limit t WHERE t.given IS NOT NULL
    UNION ALL SELECT g.proof -> 0 ->> 1, NULL, g.proof::text FROM ({LIMIT.gone_sql()}) g"""
_TAKE = "SELECT * FROM runs_take_permit(%s, %s::text[], %s, %s, %s, %s, %s, %s, %s, %s::jsonb)"
_GIVE_BACK = "SELECT * FROM runs_give_back(%s::uuid[], %s)"
_REPORT = "SELECT * FROM runs_tell_limit(%s, %s, %s, %s, %s, %s, %s, %s::jsonb)"
_OUTAGE = (psycopg.Error, OSError, PoolTimeout)


@dataclass(slots=True)
class KeyState:
    """State of a key as of the last refresh."""

    rule: Rule = field(default_factory=Rule)
    is_open: bool = False
    held_until: float = 0.0  # on this process's monotonic clock
    has_failures: bool = False

    @property
    def needs_permit(self) -> bool:
        limited = self.rule.per_minute is not None or self.rule.at_once is not None
        return limited or self.is_open or self.held_until > time.monotonic()


@dataclass(slots=True)
class _Count:
    """Results of a key's calls that are not reported yet."""

    ok: int = 0
    failed: int = 0
    error: str = ""
    held: float = 0.0

    def __add__(self, other: _Count) -> _Count:
        error, held = other.error or self.error, max(self.held, other.held)
        return _Count(self.ok + other.ok, self.failed + other.failed, error, held)


class _Queue:
    """The calls of this process that wait under the same keys.

    The first sends requests; the others wait for their turn."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self.wake = asyncio.Event()
        self._is_busy = False
        self._n = itertools.count()

    async def wait_turn(self, earlier: int) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self.waiting, (-earlier, next(self._n), mine))
        try:
            await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                self.leave()  # its turn came while the call was being cancelled
            mine.cancel()
            raise

    def leave(self) -> None:
        """Give the turn to the next waiting call."""
        self._is_busy = False
        while self.waiting:
            *_, following = heapq.heappop(self.waiting)
            if not following.done():
                self._is_busy = True
                following.set_result(None)
                return


class WorkerLimits(Limits):
    """The limits that one worker enforces."""

    def __init__(self, worker: UUID) -> None:
        self.worker = worker
        self._pool: Pool | None = None
        self._known: dict[str, KeyState] = {}
        self._tools: dict[str, Any] = {}  # the merged rules of tools, settings and people
        self._installed: dict[str, Any] = {}
        self._given: dict[str, Any] = {}
        self._given_rows: list[Any] | None = None
        self.changed_outside: set[str] = set()  # keys whose rule was changed without the installation's key
        self._read_at, self._declared = float("-inf"), ""
        self._queues: dict[tuple[str, ...], _Queue] = {}
        self._back: list[str] = []
        self._counts: dict[str, _Count] = {}
        self._probes: list[tuple[str, str, TryResult]] = []
        self._wake = asyncio.Event()
        self._reported_at = time.monotonic()
        # Some key has failures. Successes then also have to be reported soon, because they decide whether breakers
        # open.
        self._is_watching = False

    # --- known rules --------------------------------------------------------------------------------------------------

    async def refresh(self, link: psycopg.AsyncConnection[Any]) -> None:
        """Store new rules from settings and tools, and read the current ones."""
        if time.monotonic() - self._read_at < REFRESH_SECONDS:
            return
        tools = {
            f"tool:{tool.name}": None if tool.rate_limit is None else tool.rate_limit.rule.fields_set()
            for agent in registry.agents()
            for tool in agent.all_tools()
        }
        self._tools = {key: rule for key, rule in tools.items() if rule is not None}
        self._installed = {key: rule.fields_set() for key, rule in settings.DURABLEAGENTS.limits.items()}
        declared = [json.dumps(self._installed, sort_keys=True), json.dumps(tools, sort_keys=True)]
        if self._declared != "\n".join(declared):
            await link.execute(_DECLARE, declared)
            await update_lanes(link)
            self._declared = "\n".join(declared)
        rows = await (await link.execute(READ_RULES, [])).fetchall()
        known_before = self._known.keys() | self.changed_outside
        await self._prove(link, sorted((key, *given) for key, _, _, _, _, *given in rows if given[0] is not None))
        now = time.monotonic()
        own = {key: KeyState(Rule.of(self.rule_of(key))) for key in self._tools | self._installed | self._given}
        self._known = own | {
            key: KeyState(own[key].rule if key in own else Rule.of(rule), breaker == "open", now + held, has_failures)
            for key, rule, breaker, held, has_failures, *_ in rows
        }
        self._is_watching = any(known.has_failures and known.rule.breaker for known in self._known.values())
        self.is_capping = any(
            known.rule.at_once for key, known in self._known.items() if key.startswith(("agent:", "tag:"))
        )
        self._read_at = now
        self.version += self._known.keys() | self.changed_outside != known_before

    async def _prove(self, link: psycopg.AsyncConnection[Any], rows: list[Any]) -> None:
        if rows == self._given_rows:
            return
        proved = await (await link.execute(_READ_PROOFS)).fetchall()
        self.changed_outside = {key for key, _, proof in proved if not is_authentic(proof)}
        self._given = {key: rule for key, rule, _ in proved if rule is not None and key not in self.changed_outside}
        self._given_rows = None if self.changed_outside else rows

    def rule_of(self, key: str) -> dict[str, Any]:
        """Return the rule in force for a key, as `runs_limit_rule` does.

        Only rules that the application wrote are used."""
        stated = self._installed | self._given
        patterns = [each for each in stated if each.endswith("*") and each != key and key.startswith(each[:-1])]
        longest = stated[max(patterns, key=len)] if patterns else {}
        return self._tools.get(key, {}) | longest | stated.get(key, {})

    @property
    def blocks_claims(self) -> bool:
        """Return whether the limit of any agent or tag was changed outside the application."""
        return any(key.startswith(("agent:", "tag:")) for key in self.changed_outside)

    def _untrusted(self, keys: tuple[str, ...]) -> str:
        """Return the first of these keys whose rule was changed outside the application; empty if none.

        The rules of matching patterns count too."""
        changed = self.changed_outside
        patterns = tuple(each[:-1] for each in changed if each.endswith("*"))
        return next((key for key in keys if key in changed or (patterns and key.startswith(patterns))), "")

    def state_of(self, key: str) -> KeyState | None:
        return self._known.get(key) or self._known.get(f"{key.partition(':')[0]}:*")

    def is_known(self, key: str) -> bool:
        return self.state_of(key) is not None or bool(self._untrusted((key,)))

    def needs_permit(self, keys: tuple[str, ...]) -> bool:
        """Return whether a call under these keys needs a permit.

        A call also needs one if a limit of its keys was changed or removed outside the application."""
        is_limited = any((known := self.state_of(key)) is not None and known.needs_permit for key in keys)
        return is_limited or bool(self._untrusted(keys))

    # --- taking -------------------------------------------------------------------------------------------------------

    async def take(self, keys: tuple[str, ...], request: PermitRequest) -> Permit | Refused:
        if untrusted := self._untrusted(keys):
            return Refused(untrusted, "changed", 5.0)
        limited_keys = tuple(
            sorted(key for key in keys if (known := self.state_of(key)) is not None and known.needs_permit)
        )
        if not limited_keys:
            return Permit("", keys)
        queue, began = self._queues.setdefault(limited_keys, _Queue()), time.monotonic()
        try:
            async with asyncio.timeout(None if self._is_short(limited_keys, queue, request.patience) else 0):
                async with asyncio.timeout(request.patience):
                    await queue.wait_turn(request.earlier)
        except TimeoutError:
            return await self._ask(str(uuid4()), limited_keys, request, queue, began, patience=-1.0)
        try:
            return await self._first(limited_keys, request, queue, began)
        finally:
            queue.leave()

    def _is_short(self, keys: tuple[str, ...], queue: _Queue, patience: float) -> bool:
        rates = [
            known.rule.per_minute for key in keys if (known := self.state_of(key)) is not None and known.rule.per_minute
        ]
        return not rates or len(queue.waiting) * 60 / min(rates) <= patience

    async def _first(
        self, keys: tuple[str, ...], request: PermitRequest, queue: _Queue, began: float
    ) -> Permit | Refused:
        """Repeat the request for a permit until it is granted or finally refused.

        Between requests, wait for a notification, but at most for the time that the database returned."""
        permit_id = str(uuid4())
        while True:
            queue.wake.clear()
            left = request.patience - (time.monotonic() - began)
            answer = await self._ask(permit_id, keys, request, queue, began, patience=left if left > 0.05 else -1.0)
            if isinstance(answer, Permit) or answer.seconds > left or left <= 0.05:
                return answer
            try:
                async with asyncio.timeout(answer.seconds * (1.0 + random.random() / 10)):
                    await queue.wake.wait()
            except TimeoutError:
                pass

    async def _ask(
        self,
        permit_id: str,
        keys: tuple[str, ...],
        request: PermitRequest,
        queue: _Queue,
        began: float,
        *,
        patience: float,
    ) -> Permit | Refused:
        """Send one request. After a connection error the request is repeated with the same id."""
        assert self._pool is not None
        again = Patience(first_seconds=0.05, last_seconds=1.0)
        while True:
            waited = time.monotonic() - began + request.earlier * REFUSAL_SECONDS
            try:
                async with self._pool.connection() as link:
                    cursor = await link.execute(
                        _TAKE,
                        [
                            permit_id,
                            list(keys),
                            self.worker,
                            request.run_id,
                            request.slot,
                            request.lasts,
                            waited,
                            len(queue.waiting),
                            patience,
                            json.dumps({key: self.rule_of(key) for key in keys}),
                        ],
                    )
                    row = await cursor.fetchone()
                break
            except _OUTAGE as error:
                log.warning("run %s: a permit can't be asked for (%s); trying again", request.run_id, first_line(error))
                await asyncio.sleep(again.seconds())
            except BaseException:
                self._give(permit_id)  # the request may have been granted, and nobody waits for it any more
                raise
        assert row is not None
        is_granted, is_held, key, why, seconds, probed = row
        return Permit(permit_id, keys, is_held, tuple(probed)) if is_granted else Refused(key, why, seconds)

    def hear(self, notification: str | None) -> None:
        """Wake the waiting calls after a notification."""
        if notification is None or notification == f"{NOTIFICATION_PREFIX}{self.worker}":
            for queue in self._queues.values():
                queue.wake.set()

    # --- giving back and reporting ------------------------------------------------------------------------------------

    def give_back(self, permit: Permit) -> None:
        if permit.is_held:
            self._give(permit.id)

    def _give(self, permit_id: str) -> None:
        self._back.append(permit_id)
        self._wake.set()

    def report(self, keys: tuple[str, ...], permit: Permit | None, result: TryResult) -> None:
        probed = () if permit is None else permit.probed
        for key in probed:
            assert permit is not None
            self._probes.append((key, permit.id, result))
            self._wake.set()
        for key in keys:
            known = self.state_of(key)
            is_ruled = known is not None and known.rule != Rule()
            # A Retry-After from a tool may concern only one call; one from a provider concerns the model.
            held = result.retry_after if is_ruled or key.startswith("model:") else 0.0
            is_counted = result.served is not None and known is not None and known.rule.breaker is not None
            if key not in probed and (is_counted or held > 0):
                count = _Count(result.served is True, result.served is False, result.error, held)
                self._counts[key] = self._counts.get(key, _Count()) + count
                if result.served is False:
                    self._reported_at = 0.0
                    self._wake.set()

    async def serve(self, pool: Pool) -> None:
        """Give back permits and report results in the background, forever.

        If the database refuses, the data is kept and sent again."""
        self._pool = pool
        again = Patience(first_seconds=0.05, last_seconds=1.0)
        while True:
            try:
                async with asyncio.timeout(WATCHFUL_REPORT_SECONDS if self._is_watching else REPORT_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.send(pool)
                again.reset()
            except _OUTAGE as error:
                log.warning("permits can't be given back (%s); trying again", first_line(error))
                await asyncio.sleep(again.seconds())
                self._wake.set()

    async def send(self, pool: Pool) -> None:
        every = WATCHFUL_REPORT_SECONDS if self._is_watching else REPORT_SECONDS
        is_due = bool(self._counts) and time.monotonic() - self._reported_at >= every
        if not (self._back or self._probes or is_due):
            return
        async with pool.connection() as link:
            while self._probes:
                key, permit_id, result = self._probes[0]
                count = _Count(0, result.served is False, result.error, result.retry_after)
                await self._report(link, key, count, permit_id, result.served)
                self._probes.pop(0)
            for key in list(self._counts) if is_due else ():
                count = self._counts.pop(key)
                try:
                    await self._report(link, key, count, None, None)
                except BaseException:
                    self._counts[key] = count + self._counts.get(key, _Count())
                    raise
                self._reported_at = time.monotonic()
            while self._back:
                given = self._back[:500]
                freed = {key for (key,) in await (await link.execute(_GIVE_BACK, [given, CHANNEL])).fetchall()}
                del self._back[: len(given)]
                for keys, queue in self._queues.items():
                    if freed.intersection(keys):
                        queue.wake.set()

    async def _report(self, link: Any, key: str, count: _Count, probe: str | None, served: bool | None) -> None:
        rule = json.dumps(self.rule_of(key))
        values = [key, int(count.ok), int(count.failed), count.error, count.held, probe, served, rule]
        row = await (await link.execute(_REPORT, values)).fetchone()
        known = self._known.get(key)
        if known is None:  # the key is covered by a pattern's rule
            like = self.state_of(key)
            known = self._known[key] = KeyState() if like is None else KeyState(like.rule)
        was_open, known.is_open = known.is_open, row[0] == "open"
        known.held_until = time.monotonic() + row[1] if row[1] else 0.0
        if known.is_open and not was_open:
            log.warning("the breaker of %s is open: %s", key, count.error)
        elif was_open and not known.is_open:
            log.warning("the breaker of %s is closed again", key)


async def update_lanes(link: psycopg.AsyncConnection[Any]) -> None:
    """Assign active runs to the right lanes after the limits of tags have changed."""
    while True:
        row = await (await link.execute("SELECT runs_line_up(500)")).fetchone()
        if row is None or row[0] < 500:
            return
