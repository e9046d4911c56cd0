"""The halt of a run, in the form that readers see. An app stores the halts themselves (runs/sql/hooks.sql)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from django.db.models import JSONField
from django.db.models.expressions import RawSQL
from pydantic import Field

from ledger.models import Head
from ledger.web.fields import ActorName
from ledger.web.shapes import Shape
from runs.models import NEVER, Run


class Halted(Shape):
    """The halt that holds the run."""

    kind: Literal["halt", "quarantine", "starts"] = Field(description="halt, quarantine, or starts (new starts only).")
    scope: Literal["all", "tag", "agent", "version", "tool", "provider"] = Field(description="Type of the scope.")
    key: str = Field(description="Name within the scope; empty for the whole installation.")
    by: ActorName
    why: str = Field(description="Justification for the halt.")
    since: datetime = Field(description="Time when the halt was set.")

    @property
    def what(self) -> str:
        return scope_name(self.kind, self.scope, self.key)


def scope_name(kind: str, scope: str, key: str) -> str:
    """Return a description of what a halt covers."""
    if scope == "all":
        return f"the whole installation ({key})" if key else "the whole installation"
    return f"new starts of {scope} {key}" if kind == "starts" else f"{scope} {key}"


def halted() -> RawSQL:
    """Return the annotation of heads that `halt_of` reads."""
    return RawSQL("runs_halt_of(ledger_head.run_id)", (), output_field=JSONField())


def halt_of(head: Head | None) -> Halted | None:
    """Return the halt of an annotated head's run; None without one."""
    return halt_from_json(getattr(head, "halted", None))


def halt_from_json(fields: Mapping[str, Any] | None) -> Halted | None:
    """Return a halt from its JSON."""
    return (
        None if not fields else Halted.model_construct(**{**fields, "since": datetime.fromisoformat(fields["since"])})
    )


def is_put_aside(run: Run) -> bool:
    """Return whether a run was set aside, so that no worker claims it, until a halt ends."""
    return run.owner is None and run.ready_at == NEVER
