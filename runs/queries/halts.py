"""The halt of a run, as its readers see it. Halts themselves belong to an app (runs/sql/hooks.sql)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import JSONField
from django.db.models.expressions import RawSQL

from ledger.models import Head
from runs.models import NEVER, Run


@dataclass(frozen=True, slots=True)
class Halted:
    """A halt that covers a run."""

    kind: str
    scope: str
    key: str
    by: str
    why: str
    since: datetime

    @property
    def what(self) -> str:
        return scope_name(self.kind, self.scope, self.key)

    def __str__(self) -> str:
        return f"halted: {self.what}, by {self.by}, since {self.since:%Y-%m-%d %H:%M} UTC: {self.why}"


def scope_name(kind: str, scope: str, key: str) -> str:
    """Return what a halt covers, in words."""
    if scope == "all":
        return f"the whole installation ({key})" if key else "the whole installation"
    return f"new starts of {scope} {key}" if kind == "starts" else f"{scope} {key}"


def halted() -> RawSQL:
    """Return the annotation of heads from which `halt_of` reads."""
    return RawSQL("runs_halt_of(ledger_head.run_id)", (), output_field=JSONField())


def halt_of(head: Head | None) -> Halted | None:
    """Return the halt of an annotated head's run; None without one."""
    return of(getattr(head, "halted", None))


def of(told: Mapping[str, Any] | None) -> Halted | None:
    """Return a halt from its JSON."""
    return None if not told else Halted(**{**told, "since": datetime.fromisoformat(told["since"])})


def is_put_aside(run: Run) -> bool:
    """Return whether a run waits for the end of a halt, hidden from claims."""
    return run.owner is None and run.ready_at == NEVER
