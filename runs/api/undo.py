"""Over HTTP: what of a run's effects would be undone, and what became of each."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import RecordDamaged
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.seeing.viewers import reads
from ledger.web.shapes import Shape
from runs.engine.errors import JournalBroken
from runs.engine.undoing.plan import Effect
from runs.services import lifecycle
from runs.services.undo import shown


class EffectRow(Shape):
    """One effect, and what becomes of it."""

    slot: str
    attempt: int
    tool: str
    external_id: str | None
    then: Literal["undo", "ask", "stays", "child", "reopen", "run"] = Field(
        description="undo: `by` is called; ask: a person is asked; stays: nothing is done; child: a run at work is "
        "cancelled and undoes its own; reopen: one that ended well is reopened for that; run: what it did before."
    )
    by: str = Field(description="The tool that undoes it.")
    arguments: Any = Field(description="What that is called with; null where nothing is, or nobody here knows.")
    why: str = Field(description="Why it stays, or what is wrong with undoing it.")
    run: str = Field(description="The run whose effects these are, where that isn't this one.")
    became: Literal["", "undone", "left"] = Field(description="What came of it; empty: nothing yet, or it stays.")


class UndoRow(Shape):
    """The effects of a run, the last first."""

    state: Literal["possible", "under_way", "done"] = Field(
        description="possible: as it would be now; under_way: as it is being done; done: as it was when the run ended."
    )
    is_needed: bool = Field(description="Whether a cancel has to say `effects`: there is something to undo.")
    effects: list[EffectRow]
    hidden: bool = Field(description="The caller has no right to read the arguments.")


class RunUndo(ApiView):
    """What of a run would be undone, in which order, and what stays and why."""

    roles = READ

    @described("Show what would be undone", UndoRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        run = lifecycle.find(run_id)
        try:
            seen = shown(run)
        except JournalBroken as broken:
            raise RecordDamaged(run_id, f"its journal: {broken}") from broken
        is_read = reads(run_id)
        rows = [_effect(each, seen.became.get((each.run, each.slot, each.attempt), "")) for each in seen.effects]
        rows = rows if is_read else [{**row, "arguments": None} for row in rows]
        return Response(UndoRow.of(seen, effects=rows, hidden=not is_read).shown())


def _effect(effect: Effect, became: str) -> dict[str, Any]:
    return EffectRow.of(effect, then=effect.what, became=became).shown()
