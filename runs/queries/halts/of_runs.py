"""Which halt a run is under, as its head is read: asked with it, and of an empty table nearly always."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import JSONField
from django.db.models.expressions import RawSQL

from ledger.models import Head
from runs.models import NEVER, Run
from runs.services.halts.acts import named

# The oldest of those that a run is under; at a call, where it was put aside there.
_HALTED = """(
    SELECT jsonb_build_object('kind', n.kind, 'scope', n.scope, 'key', n.key, 'by', n.by, 'why', n.why,
                              'since', n.since)
    FROM runs_run r LEFT JOIN runs_held x ON x.run_id = r.id
    CROSS JOIN LATERAL runs_halts_on(r.id, r.agent, r.graph_id, r.started_at IS NULL AND r.came_from IS NULL, x.keys) n
    WHERE EXISTS (SELECT 1 FROM runs_haltnow) AND r.id = ledger_head.run_id AND r.ended_at IS NULL LIMIT 1)"""


@dataclass(frozen=True, slots=True)
class Halted:
    """A halt that a run is under."""

    kind: str
    scope: str
    key: str
    by: str
    why: str
    since: datetime

    @property
    def what(self) -> str:
        """What is halted, in words."""
        return named(self)

    def __str__(self) -> str:
        return f"halted: {self.what}, by {self.by}, since {self.since:%Y-%m-%d %H:%M} UTC: {self.why}"


def halted() -> RawSQL:
    """What a query of heads is annotated with."""
    return RawSQL(_HALTED, (), output_field=JSONField())


def halt_of(head: Head | None) -> Halted | None:
    """The halt that the run of a head so read is under."""
    return of(getattr(head, "halted", None))


def of(told: Mapping[str, Any] | None) -> Halted | None:
    """The same as the database tells it."""
    return None if not told else Halted(**{**told, "since": datetime.fromisoformat(told["since"])})


def is_put_aside(run: Run) -> bool:
    """Whether it wants driving and is not looked for before its halt says something else."""
    return run.owner is None and run.ready_at == NEVER
