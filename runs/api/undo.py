"""API of a run's effects: those that would be undone, and the outcome for each."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.errors import RecordDamaged
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.fields import Attempt, Slot, ToolName
from ledger.web.seeing.viewers import reads
from ledger.web.shapes import Shape
from runs.engine.errors import JournalBroken
from runs.engine.undoing.plan import Effect
from runs.services import lifecycle
from runs.services.undo import undo_view


class EffectRow(Shape):
    """One effect of a run and what happens to it."""

    slot: Slot
    attempt: Attempt
    tool: ToolName
    external_id: str | None = Field(description="Id that the upstream system returned; null if none.")
    then: Literal["undo", "ask", "stays", "child", "reopen", "run"] = Field(
        description="undo: `by` is called. ask: a person is asked. stays: nothing is done. child: an active "
        "run is cancelled and undoes its own effects. reopen: a completed run is reopened for "
        "that. run: what that run did."
    )
    by: str = Field(description="Tool that undoes it.")
    arguments: Any = Field(
        description="Arguments of that tool; null if no tool is called, or if they are not known here."
    )
    why: str = Field(description="Why the effect stays, or why it can't be undone.")
    run: str = Field(description="Run that had the effect, if it isn't this one.")
    became: Literal["", "undone", "left"] = Field(
        description="Result; empty if there is none yet, or if the effect stays."
    )


class UndoRow(Shape):
    """The effects of a run, newest first."""

    state: Literal["possible", "under_way", "done"] = Field(
        description="possible: as an undo would proceed now. under_way: in progress. done: as of the run's end."
    )
    is_needed: bool = Field(
        description="Whether a request to cancel must contain `effects`, because there is something to undo."
    )
    effects: list[EffectRow] = Field(description="The effects, last first.")
    hidden: bool = Field(description="True if the caller may not read the arguments.")


class RunUndo(ApiView):
    """The effects that would be undone, in order, and those that stay, with the reason."""

    roles = READ

    @described("Preview a run's undo", UndoRow)
    def get(self, request: Request, run_id: UUID) -> Response:
        Query(request)
        run = lifecycle.find(run_id)
        try:
            seen = undo_view(run)
        except JournalBroken as broken:
            raise RecordDamaged(run_id, f"its journal: {broken}") from broken
        is_read = reads(run_id)
        rows = [_effect(each, seen.became.get((each.run, each.slot, each.attempt), "")) for each in seen.effects]
        rows = rows if is_read else [{**row, "arguments": None} for row in rows]
        return Response(UndoRow.of(seen, effects=rows, hidden=not is_read).shown())


def _effect(effect: Effect, became: str) -> dict[str, Any]:
    return EffectRow.of(effect, then=effect.what, became=became).shown()
