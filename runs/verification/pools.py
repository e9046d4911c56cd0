"""Verification of pools: charges against journals, both ways; counters against charges; limits against acts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Sum

from ledger import events as e
from ledger.models import ActRecord
from ledger.verification.registers import Listed
from ledger.verification.runs import Line, ReadJournal
from runs.models import Pool, PoolCharge, PoolMeter, PoolPeriod, Run
from runs.services.pools.acts import snapshot, subject_of

# A step may miss a pool for a moment after its time, until its creation is committed.
LATE = timedelta(seconds=10)
Key = tuple[str | None, int, int]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call that pools count, by its intent."""

    at: datetime
    event: e.ToolInvoked | e.ModelRouted

    def amount(self, resource: str) -> int | None:
        """Return what it reserves of a resource; None if unknown."""
        if isinstance(self.event, e.ToolInvoked):
            return int(resource == Pool.Resource.TOOL_CALLS)
        if resource == Pool.Resource.TOOL_CALLS:
            return 0
        return 1 if resource == Pool.Resource.MODEL_CALLS else getattr(self.event, resource)

    @property
    def provider(self) -> str | None:
        return self.event.model.partition(":")[0] if isinstance(self.event, e.ModelRouted) else None


class Charges:
    """One run's charges."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.pools = {pool.pk: pool for pool in Pool.objects.all()}
        self.begun: dict[Key, _Begun] = {}
        self.debits: dict[Key, e.BudgetDebited] = {}
        self.has_ended = False

    def see(self, line: Line) -> None:
        """Fold one event in; nothing is kept without pools."""
        if not self.pools:
            return
        match line.event:
            case e.ToolInvoked() as call:
                self.begun[call.slot, call.attempt, 0] = _Begun(line.at, call)
            case e.ModelRouted() as route:
                self.begun[route.slot, route.attempt, route.n] = _Begun(line.at, route)
            case e.BudgetDebited() as debit:
                self.debits[debit.slot, debit.attempt, debit.n] = debit
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                self.has_ended = True
            case e.RunRetried() | e.UndoAsked():
                self.has_ended = False
            case _:
                pass

    def problems(self) -> Iterator[str]:
        found: set[tuple[Key, int]] = set()
        for charge in self.journal.rows(PoolCharge):
            key: Key = charge.slot, charge.attempt, charge.n
            found.add((key, charge.pool_id))
            yield from self._about(charge, self.begun.get(key), self.debits.get(key))
        run = self.journal.row(Run)
        if run is None:
            return  # reported elsewhere
        for key, begun in self.begun.items():
            for pool in self.pools.values():
                is_charged, amount = (key, pool.pk) in found, begun.amount(pool.resource)
                if is_charged and not covers(pool, run, begun.provider):
                    yield f"{_what(key)}: pool {pool.pk} was charged for it, to which the run does not belong"
                elif not is_charged and amount and self._was_on(pool, begun.at) and covers(pool, run, begun.provider):
                    yield f"{_what(key)}: it took {amount} from pool {pool.pk}, which knows nothing of it"

    def _was_on(self, pool: Pool, at: datetime) -> bool:
        return pool.made_at + LATE <= at and (pool.off_at is None or at < pool.off_at)

    def _about(self, charge: PoolCharge, begun: _Begun | None, debit: e.BudgetDebited | None) -> Iterator[str]:
        what = f"{_what((charge.slot, charge.attempt, charge.n))}, pool {charge.pool_id}"
        pool = self.pools[charge.pool_id]
        if begun is None:
            yield f"{what}: it was charged, and the journal tells of no such call"
            return
        if charge.reserved != begun.amount(pool.resource):
            yield f"{what}: {charge.reserved} was set aside, the journal says {begun.amount(pool.resource)}"
        if begun.at < pool.made_at or (pool.off_at is not None and begun.at >= pool.off_at):
            yield f"{what}: it was charged when the pool was not there, or off"
        if charge.starts_at not in _periods(pool, begun.at):
            yield f"{what}: it was charged in a period that it was not begun in"
        used = self._used(pool, charge, debit)
        if charge.used != used:
            yield f"{what}: {charge.used} was used, the journal says {used}"

    def _used(self, pool: Pool, charge: PoolCharge, debit: e.BudgetDebited | None) -> int | None:
        """Return the use: tool calls when begun; undebited requests, once the run has ended, what was reserved."""
        if pool.resource == Pool.Resource.TOOL_CALLS:
            return charge.reserved
        if debit is not None:
            used = getattr(debit, pool.resource)
            return charge.reserved if used is None else int(used)
        return charge.reserved if self.has_ended else None


def covers(pool: Pool, run: Run, provider: str | None) -> bool:
    """Return whether a pool counts a run's calls, for a model's provider if given."""
    match pool.scope:
        case Pool.Scope.ALL:
            return True
        case Pool.Scope.AGENT:
            return bool(pool.of == run.agent)
        case Pool.Scope.PERSON:
            return bool(pool.of == str(run.creator))
        case Pool.Scope.PROVIDER:
            return bool(pool.of == provider)
        case _:
            tags = run.tags
            pairs = [f"{name}:{value}" for name, value in tags.items()] if isinstance(tags, dict) else []
            return pool.of in [*tags, *pairs]


def _what(key: Key) -> str:
    slot, attempt, n = key
    return f"the call at slot {slot}, attempt {attempt}, request {n}"


def _periods(pool: Pool, at: datetime) -> set[datetime]:
    """Return the possible starts of a call's period: the meter is read just before the intent is written."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT starts_at FROM (VALUES (%s::timestamptz), (%s::timestamptz)) v(at), "
            "LATERAL runs_pool_period(%s, %s, v.at)",
            [at, at - LATE, pool.period, pool.zone],
        )
        return {row[0] for row in cursor.fetchall()}


# --- outside of runs --------------------------------------------------------------------------------------------------


def every_pool() -> Listed | None:
    """Check every pool's counters, and the pool against its acts; None if there are none."""
    found: list[str] = []
    every = list(Pool.objects.order_by("id"))
    sums: dict[int, dict[datetime, tuple[int, int]]] = defaultdict(dict)
    charged = PoolCharge.objects.values("pool_id", "starts_at", "used")
    for row in charged.filter(used__isnull=False).values("pool_id", "starts_at").annotate(of=Sum("used")):
        sums[row["pool_id"]][row["starts_at"]] = (int(row["of"]), 0)
    for row in charged.filter(used__isnull=True).values("pool_id", "starts_at").annotate(of=Sum("reserved")):
        used, _ = sums[row["pool_id"]].get(row["starts_at"], (0, 0))
        sums[row["pool_id"]][row["starts_at"]] = (used, int(row["of"]))
    for pool in every:
        found += [f"pool {pool.pk} ({pool.name}): {problem}" for problem in _pool_problems(pool, sums[pool.pk])]
    return Listed("pools", len(every), "", found) if every else None


def _pool_problems(pool: Pool, sums: dict[datetime, tuple[int, int]]) -> Iterator[str]:
    meter = PoolMeter.objects.filter(pool=pool).first()
    if meter is None:
        yield "its meter is gone"
        return
    rows = {meter.starts_at: (meter.used, meter.reserved)}
    for period in PoolPeriod.objects.filter(pool=pool):
        if period.starts_at in rows:
            yield f"the period from {period.starts_at.isoformat()} is both over and under way"
        rows[period.starts_at] = (period.used, period.reserved)
    for starts_at in sorted(rows.keys() | sums.keys()):
        counted, known = rows.get(starts_at), sums.get(starts_at, (0, 0))
        if counted is None:
            yield f"the period from {starts_at.isoformat()} has charges and no row"
        elif counted != known:
            yield (
                f"in the period from {starts_at.isoformat()} it counts {counted[0]} used and {counted[1]} set aside, "
                f"its charges come to {known[0]} and {known[1]}"
            )
    # Only acts with a valid place in their list; others prove nothing here.
    acts = ActRecord.objects.filter(run_id__isnull=True, n__gt=0, subject=subject_of(pool), action__startswith="pool")
    last = acts.order_by("-n").first()
    if last is None or last.after != snapshot(pool, meter):
        yield "what it is and how much it gives is not what whoever set it last put on record"
    same = (meter.resource, meter.period, meter.zone) == (pool.resource, pool.period, pool.zone)
    if not same or meter.is_on != (pool.off_at is None):
        yield "its meter counts something else than it says"
