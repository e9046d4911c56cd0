"""Judges shared budgets: each call reserved its share once and returned what it did not use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.system.crash.checker import Finding

Row = Mapping[str, Any]
Call = tuple[str, str, int, int]  # run, slot, attempt, request


@dataclass(frozen=True)
class Shared:
    """Pools, their periods and all charges. `is_off`: switched off, so later calls may be missing."""

    pools: Sequence[Row] = ()
    periods: Sequence[Row] = ()
    charges: Sequence[Row] = ()
    is_off: bool = False


@dataclass
class _Calls:
    """The calls that count towards pools, by the runs' journals."""

    wanted: dict[Call, dict[str, int]] = field(default_factory=dict)
    used: dict[Call, dict[str, int]] = field(default_factory=dict)
    order: Counter[str] = field(default_factory=Counter)

    def read(self, run: str, events: Sequence[Row]) -> None:
        for event in events:
            data, kind = event["data"], event["kind"]
            if kind == "ToolInvoked":
                call = run, event["slot"], event["attempt"], 0
                self.wanted[call] = self.used[call] = {"tool_calls": 1}
            elif kind in ("ModelRouted", "BudgetDebited"):
                call = run, event["slot"], event["attempt"], data["n"]
                amounts = {name: data[name] or 0 for name in ("tokens_in", "tokens_out", "usd_micro")}
                known = self.wanted if kind == "ModelRouted" else self.used
                known[call] = amounts | {"model_calls": data.get("model_calls", 1)}


def judge_shared(shared: Shared, journals: Mapping[str, Sequence[Row]], ended: frozenset[str]) -> Iterator[Finding]:
    calls = _Calls()
    for run, events in journals.items():
        calls.read(run, events)
    known = {(c["run"], c["slot"], c["attempt"], c["n"], c["pool"]): c for c in shared.charges}
    for pool in shared.pools:
        for call, wanted in calls.wanted.items():
            charge = known.pop((*call, pool["id"]), None)
            yield from _about(pool, call, wanted.get(pool["resource"], 0), charge, calls, ended, shared.is_off)
    for run, slot, *_, pool_id in known:
        yield Finding("duplicate", run, f"pool {pool_id} was charged for a call at {slot} that was never begun")
    yield from _sums(shared)


def _about(
    pool: Row, call: Call, wanted: int, charge: Row | None, calls: _Calls, ended: frozenset[str], is_off: bool
) -> Iterator[Finding]:
    run, what = call[0], f"pool {pool['id']} of {pool['resource']}, call {call[1:]}"
    if charge is None:
        if wanted and not is_off:
            yield Finding("lost", run, f"{what}: it took {wanted}, which is not charged")
        return
    if charge["reserved"] != wanted:
        yield Finding("broken", run, f"{what}: {charge['reserved']} set aside instead of {wanted}")
    used = calls.used.get(call)
    if used is None and charge["used"] is None and run in ended:
        yield Finding("lost", run, f"{what}: the run has ended, and {charge['reserved']} are set aside for good")
    if used is not None and charge["used"] != used.get(pool["resource"], 0):
        yield Finding("broken", run, f"{what}: {charge['used']} used, and a debit of {used.get(pool['resource'], 0)}")


def _sums(shared: Shared) -> Iterator[Finding]:
    used: Counter[tuple[Any, Any]] = Counter()
    reserved: Counter[tuple[Any, Any]] = Counter()
    beyond: Counter[tuple[Any, Any]] = Counter()  # by answers longer than their reservations
    for charge in shared.charges:
        period = charge["pool"], charge["starts_at"]
        if charge["used"] is None:
            reserved[period] += charge["reserved"]
        else:
            used[period] += charge["used"]
            beyond[period] += max(0, charge["used"] - charge["reserved"])
    for row in shared.periods:
        period = row["pool"], row["starts_at"]
        counted, listed = (row["used"], row["reserved"]), (used.pop(period, 0), reserved.pop(period, 0))
        if counted != listed:
            kind = "lost" if counted < listed else "duplicate"
            yield Finding(kind, "-", f"pool {period[0]} counts {counted} used and set aside, its charges are {listed}")
        if row["used"] - beyond[period] > row["most"] and not shared.is_off:
            yield Finding("duplicate", "-", f"pool {period[0]} gave {row['used']} of {row['most']}")
    for period in used.keys() | reserved.keys():
        yield Finding("broken", "-", f"pool {period[0]} has charges of a period that it knows nothing of")
