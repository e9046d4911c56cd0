"""Verify halts.

Their rows must be authentic, linked, and have matching acts, and the halts in force must match the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from uuid import UUID

from durableagents.contrib.halts.models import Halt, HaltNow
from durableagents.contrib.halts.services import ACTIONS, halt_values, subject_of
from ledger.models import ActRecord
from ledger.verification.registers import Listed

# Fields that a halt in force copies from the last row of its record.
_SAME = ("id", "n", "kind", "scope", "key", "refuses", "share", "agents", "tags")


def check_halts() -> Listed | None:
    """Check all halts; None if there are none."""
    rows: dict[UUID, list[Halt]] = {}
    for row in Halt.objects.order_by("halt", "n"):
        rows.setdefault(row.halt, []).append(row)
    now = {one.halt: one for one in HaltNow.objects.all()}
    if not rows and not now:
        return None
    about = ActRecord.objects.filter(run_id__isnull=True, n__gt=0, action__in=ACTIONS)
    numbered = [(act, act.after.get("n")) for act in about if isinstance(act.after, dict)]
    acts = {(act.subject, n): act for act, n in numbered if n is None or isinstance(n, int)}
    problems = [problem for halt, some in rows.items() for problem in _of(halt, some, now.get(halt), acts)]
    problems += [f"halt {halt} is in force, but has no record" for halt in now if halt not in rows]
    return Listed("halts", sum(map(len, rows.values())), "", problems)


def _of(
    halt: UUID, rows: list[Halt], now: HaltNow | None, acts: dict[tuple[str, int | None], ActRecord]
) -> Iterator[str]:
    before: Halt | None = None
    for n, row in enumerate(rows):
        what = f"row {row.n} of halt {halt}"
        if row.n != n:
            yield f"{what}: a row before it is missing"
        if not row.is_authentic:
            yield f"{what} was not written by this installation"
        if before is not None and not _opens(before, row):
            yield f"{what} does not follow the one before"
        act = acts.get((subject_of(halt), row.n))
        if act is None or act.after != halt_values(row) or act.by != row.by or act.justification != row.why:
            yield f"{what} has no recorded act"
        before = row
    last = rows[-1]
    if last.stage == Halt.Stage.LIFTED:
        if now is not None:
            yield f"halt {halt} is lifted, but still among the halts in force"
    elif now is None:
        yield f"halt {halt} is not lifted, but is missing from the halts in force"
    elif (
        any(getattr(now, name) != getattr(last, name) for name in _SAME)
        or now.is_staged != (last.stage == Halt.Stage.STAGED)
        or (now.by, now.why, now.since) != (rows[0].by, rows[0].why, rows[0].at)
    ):
        yield f"halt {halt} differs from its record"


def _opens(before: Halt, row: Halt) -> bool:
    if before.lock is None or row.opens is None:
        return False
    return hashlib.sha256(bytes(row.opens)).digest() == bytes(before.lock)
