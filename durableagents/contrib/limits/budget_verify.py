"""Verifies shared budgets.

Charges are compared with journals in both directions, meters with charges, and limits with the recorded acts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Sum

from durableagents.contrib.limits.models import BudgetCharge, BudgetMeter, BudgetPeriod, SharedBudget
from durableagents.contrib.limits.shared_budgets import snapshot, subject_of
from ledger import events as e
from ledger.models import ActRecord
from ledger.verification.registers import Listed
from ledger.verification.runs import EventLine, ReadJournal
from runs.models import Run

# A step may miss a shared budget that was created less than this long before it, because the creation wasn't committed
# yet.
LATE = timedelta(seconds=10)
Key = tuple[str | None, int, int]


@dataclass(frozen=True, slots=True)
class _Begun:
    """The recorded start of a call that counts towards shared budgets."""

    at: datetime
    event: e.ToolInvoked | e.ModelRouted

    def amount(self, resource: str) -> int | None:
        """Return the amount that the call reserves of a resource; None if unknown."""
        if isinstance(self.event, e.ToolInvoked):
            return int(resource == SharedBudget.Resource.TOOL_CALLS)
        if resource == SharedBudget.Resource.TOOL_CALLS:
            return 0
        return 1 if resource == SharedBudget.Resource.MODEL_CALLS else getattr(self.event, resource)

    @property
    def provider(self) -> str | None:
        return self.event.model.partition(":")[0] if isinstance(self.event, e.ModelRouted) else None


class Charges:
    """Checks the charges of one run."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.budgets = {budget.pk: budget for budget in SharedBudget.objects.all()}
        self.begun: dict[Key, _Begun] = {}
        self.debits: dict[Key, e.BudgetDebited] = {}
        self.has_ended = False

    def see(self, line: EventLine) -> None:
        """Record one event; events are ignored if there are no shared budgets."""
        if not self.budgets:
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
        for charge in self.journal.rows(BudgetCharge):
            key: Key = charge.slot, charge.attempt, charge.n
            found.add((key, charge.budget_id))
            yield from self._about(charge, self.begun.get(key), self.debits.get(key))
        run = self.journal.row(Run)
        if run is None:
            return  # the missing row is reported by another check
        for key, begun in self.begun.items():
            for budget in self.budgets.values():
                is_charged, amount = (key, budget.pk) in found, begun.amount(budget.resource)
                if is_charged and not covers(budget, run, begun.provider):
                    yield f"{_charge(key)}: shared budget {budget.pk} of other runs was charged for it"
                elif (
                    not is_charged and amount and self._was_on(budget, begun.at) and covers(budget, run, begun.provider)
                ):
                    yield f"{_charge(key)}: it used {amount} of shared budget {budget.pk}, which has no charge for it"

    def _was_on(self, budget: SharedBudget, at: datetime) -> bool:
        return budget.made_at + LATE <= at and (budget.off_at is None or at < budget.off_at)

    def _about(self, charge: BudgetCharge, begun: _Begun | None, debit: e.BudgetDebited | None) -> Iterator[str]:
        what = f"{_charge((charge.slot, charge.attempt, charge.n))}, shared budget {charge.budget_id}"
        budget = self.budgets[charge.budget_id]
        if begun is None:
            yield f"{what}: it was charged, but the journal has no such call"
            return
        if charge.reserved != begun.amount(budget.resource):
            yield f"{what}: {charge.reserved} was reserved, but the journal says {begun.amount(budget.resource)}"
        if begun.at < budget.made_at or (budget.off_at is not None and begun.at >= budget.off_at):
            yield f"{what}: it was charged when the shared budget did not exist or was off"
        if charge.starts_at not in _periods(budget, begun.at):
            yield f"{what}: it was charged in a period other than the one in which it began"
        used = self._used(budget, charge, debit)
        if charge.used != used:
            yield f"{what}: {charge.used} was used, but the journal says {used}"

    def _used(self, budget: SharedBudget, charge: BudgetCharge, debit: e.BudgetDebited | None) -> int | None:
        """Return the amount used; None while it is unknown.

        A tool call counts as used when it begins. A model request without a debit counts with its reserved amount once
        the run has ended."""
        if budget.resource == SharedBudget.Resource.TOOL_CALLS:
            return charge.reserved
        if debit is not None:
            used = getattr(debit, budget.resource)
            return charge.reserved if used is None else int(used)
        return charge.reserved if self.has_ended else None


def covers(budget: SharedBudget, run: Run, provider: str | None) -> bool:
    """Return whether a shared budget covers calls of this run, or its requests to this provider."""
    match budget.scope:
        case SharedBudget.Scope.ALL:
            return True
        case SharedBudget.Scope.AGENT:
            return bool(budget.of == run.agent)
        case SharedBudget.Scope.PERSON:
            return bool(budget.of == str(run.creator))
        case SharedBudget.Scope.PROVIDER:
            return bool(budget.of == provider)
        case _:
            tags = run.tags
            pairs = [f"{name}:{value}" for name, value in tags.items()] if isinstance(tags, dict) else []
            return budget.of in [*tags, *pairs]


def _charge(key: Key) -> str:
    slot, attempt, n = key
    return f"the call at slot {slot}, attempt {attempt}, request {n}"


def _periods(budget: SharedBudget, at: datetime) -> set[datetime]:
    """Return the possible start times of the period that a call belongs to.

    There can be two, because the meter is read just before the intent is written."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT starts_at FROM (VALUES (%s::timestamptz), (%s::timestamptz)) v(at), "
            "LATERAL runs_pool_period(%s, %s, v.at)",
            [at, at - LATE, budget.period, budget.zone],
        )
        return {row[0] for row in cursor.fetchall()}


# --- outside of runs --------------------------------------------------------------------------------------------------


def check_shared_budgets() -> Listed | None:
    """Check the meters of all shared budgets, and each budget against its recorded acts; None if there are none."""
    found: list[str] = []
    every = list(SharedBudget.objects.order_by("id"))
    sums: dict[int, dict[datetime, tuple[int, int]]] = defaultdict(dict)
    charged = BudgetCharge.objects.values("budget_id", "starts_at", "used")
    for row in charged.filter(used__isnull=False).values("budget_id", "starts_at").annotate(of=Sum("used")):
        sums[row["budget_id"]][row["starts_at"]] = (int(row["of"]), 0)
    for row in charged.filter(used__isnull=True).values("budget_id", "starts_at").annotate(of=Sum("reserved")):
        used, _ = sums[row["budget_id"]].get(row["starts_at"], (0, 0))
        sums[row["budget_id"]][row["starts_at"]] = (used, int(row["of"]))
    for budget in every:
        found += [
            f"shared budget {budget.pk} ({budget.name}): {problem}" for problem in _problems_of(budget, sums[budget.pk])
        ]
    return Listed("shared budgets", len(every), "", found) if every else None


def _problems_of(budget: SharedBudget, sums: dict[datetime, tuple[int, int]]) -> Iterator[str]:
    meter = BudgetMeter.objects.filter(budget=budget).first()
    if meter is None:
        yield "its meter is missing"
        return
    rows = {meter.starts_at: (meter.used, meter.reserved)}
    for period in BudgetPeriod.objects.filter(budget=budget):
        if period.starts_at in rows:
            yield f"the period from {period.starts_at.isoformat()} is recorded both as past and as current"
        rows[period.starts_at] = (period.used, period.reserved)
    for starts_at in sorted(rows.keys() | sums.keys()):
        counted, known = rows.get(starts_at), sums.get(starts_at, (0, 0))
        if counted is None:
            yield f"the period from {starts_at.isoformat()} has charges but no row"
        elif counted != known:
            yield (
                f"in the period from {starts_at.isoformat()} it counts {counted[0]} used and {counted[1]} reserved, "
                f"but its charges come to {known[0]} and {known[1]}"
            )
    # Acts without a valid number in their list are ignored here, because they prove nothing.
    acts = ActRecord.objects.filter(run_id__isnull=True, n__gt=0, subject=subject_of(budget), action__startswith="pool")
    last = acts.order_by("-n").first()
    if last is None or last.after != snapshot(budget, meter):
        yield "it differs from the last recorded change"
    same = (meter.resource, meter.period, meter.zone) == (budget.resource, budget.period, budget.zone)
    if not same or meter.is_on != (budget.off_at is None):
        yield "its meter counts something else"
