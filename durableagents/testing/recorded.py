"""Answer a story from a record, by slot, in the form that `manage.py runs to-test` writes."""

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
    """The recorded outcome at each slot: of a call, a value, a model's turn, or a child's end."""

    places: Mapping[str, Any]
    asked: set[str] = field(default_factory=set)

    def answer_of(self, tool: Tool, args: Any, call: ToolCall) -> Any:
        """Return the recorded outcome of a call. A different call stops the story with an error that shows both."""
        known = self.places.get(call.slot)
        attempts = known if isinstance(known, list) else [known] if known else []
        call_text = call_in_words(tool.name, args)
        if call.attempt >= len(attempts) or "tool" not in attempts[call.attempt]:
            raise Stopped(f"at {call.slot} the record has no call, but the code makes {call_text}")
        answer = attempts[call.attempt]
        recorded = call_in_words(answer["tool"], answer["args"])
        misfit = first_misfit(answer["args"], args)
        if answer["tool"] != tool.name or misfit:
            raise Stopped(
                f"at {call.slot} the record has {recorded}, but the code makes {call_text}: {misfit or 'another tool'}"
            )
        self.asked.add(call.slot)
        return _outcome(answer)

    def values_of(self, visit: str) -> dict[str, tuple[str, Any]]:
        """Return the values that a visit read, by slot."""
        return {
            slot: (value["value"], value["is"])
            for slot, value in self.places.items()
            if isinstance(value, dict) and "value" in value and slot.partition("/")[0] == visit
        }

    def turns(self) -> dict[str, list[Any]]:
        """Return the answers of each model, in order."""
        fields: dict[str, list[Any]] = {}
        for item in (each for each in self.places.values() if isinstance(each, dict) and "assistant" in each):
            turn = ModelRefused(item["fails"], item["message"]) if "fails" in item else item["answers"]
            fields.setdefault(item["assistant"], []).append(turn)
        return fields

    def left_out(self) -> list[str]:
        """Return recorded calls that the code didn't make."""
        calls = {
            slot: answers[0] if isinstance(answers, list) else answers
            for slot, answers in self.places.items()
            if slot not in self.asked
        }
        return [
            f"{call_in_words(answers['tool'], answers['args'])} at {slot}"
            for slot, answers in calls.items()
            if isinstance(answers, dict) and "tool" in answers
        ]


def _outcome(fields: Mapping[str, Any]) -> Any:
    if "refused" in fields:
        raise BusinessFailure(fields.get("message", ""), code=fields["refused"], details=fields.get("details"))
    if fields.get("unknown"):
        raise TransportError("no answer, as on record")
    if "accepted" in fields:
        return Pending(receipt=fields["accepted"], within=timedelta(seconds=fields.get("within_seconds", 86400)))
    return fields["returns"]
