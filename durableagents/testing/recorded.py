"""A story answered from a record, by slot, as `manage.py runs to-test` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from durableagents.testing.clock import Stopped
from runs.engine.assistants import ModelRefused
from runs.engine.errors import BusinessFailure, TransportError
from runs.engine.recordings.replaying import call_in_words, first_misfit
from runs.engine.tools import Pending, Tool, ToolCall


@dataclass
class Record:
    """The recorded outcome at each slot: a call's, a value, a model's turn, a child's end."""

    places: Mapping[str, Any]
    asked: set[str] = field(default_factory=set)

    def answer_of(self, tool: Tool, args: Any, call: ToolCall) -> Any:
        """Return the recorded outcome of a call. Any other call stops the story with both as text."""
        known = self.places.get(call.slot)
        attempts = known if isinstance(known, list) else [known] if known else []
        asked = call_in_words(tool.name, args)
        if call.attempt >= len(attempts) or "tool" not in attempts[call.attempt]:
            raise Stopped(f"at {call.slot} the record has no call, and the code asks for {asked}")
        told = attempts[call.attempt]
        recorded = call_in_words(told["tool"], told["args"])
        misfit = first_misfit(told["args"], args)
        if told["tool"] != tool.name or misfit:
            raise Stopped(
                f"at {call.slot} the record has {recorded}, and the code asks for {asked}: {misfit or 'another tool'}"
            )
        self.asked.add(call.slot)
        return _outcome(told)

    def values_of(self, visit: str) -> dict[str, tuple[str, Any]]:
        """Return the values that a visit read, by slot."""
        return {
            slot: (told["value"], told["is"])
            for slot, told in self.places.items()
            if isinstance(told, dict) and "value" in told and slot.partition("/")[0] == visit
        }

    def turns(self) -> dict[str, list[Any]]:
        """Return each model's answers, in order."""
        said: dict[str, list[Any]] = {}
        for told in (each for each in self.places.values() if isinstance(each, dict) and "assistant" in each):
            turn = ModelRefused(told["fails"], told["message"]) if "fails" in told else told["answers"]
            said.setdefault(told["assistant"], []).append(turn)
        return said

    def left_out(self) -> list[str]:
        """Return recorded calls that the code did not make."""
        calls = {
            slot: told[0] if isinstance(told, list) else told
            for slot, told in self.places.items()
            if slot not in self.asked
        }
        return [
            f"{call_in_words(told['tool'], told['args'])} at {slot}"
            for slot, told in calls.items()
            if isinstance(told, dict) and "tool" in told
        ]


def _outcome(told: Mapping[str, Any]) -> Any:
    if "refused" in told:
        raise BusinessFailure(told.get("message", ""), code=told["refused"], details=told.get("details"))
    if told.get("unknown"):
        raise TransportError("no answer, as on record")
    if "accepted" in told:
        return Pending(receipt=told["accepted"], within=timedelta(seconds=told.get("within_seconds", 86400)))
    return told["returns"]
