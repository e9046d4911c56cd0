"""Screening of what a model is shown: each part of a request that somebody else than the assistant's author wrote.

What is on record of a request is put in place again whenever the conversation is rebuilt, so that its later requests go
on from what the model was shown. Each request that goes out is looked at whole, by the hooks of today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger import events as e
from runs.engine.content.files import as_content, as_data
from runs.engine.content.hooks import Piece
from runs.engine.screening.verdicts import Finding, due, look, recorded, refusal, refused_at, standing
from runs.engine.tape import Slot
from runs.engine.visit import Visit


@dataclass
class Shown:
    """What is known of the parts of a conversation, by their ids: which came from the journal, and which are markers
    that stand for what was refused, and which hooks have seen them. `source` is what its first text is."""

    source: str = "prompt"
    restored: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    seen: dict[int, set[str]] = field(default_factory=dict)


class RequestScreening:
    """One request's. `events` are to go on record with its intent."""

    def __init__(
        self, visit: Visit, slot: str, assistant: str, messages: Sequence[Any], record: Slot, shown: Shown
    ) -> None:
        self._visit, self._slot, self._attempt, self._past = visit, slot, record.current, record.now
        self._assistant, self._shown = assistant, shown
        self._parts = {str(n): part for n, part in enumerate(_parts_of(messages))}
        self.events: list[e.Event] = []
        for place, content in standing(record).items():
            if place in self._parts:
                self._put(place, content, is_held=(place in refused_at(record)))

    @property
    def refusal(self) -> Exception | None:
        """What the node gets of a request that was not let through."""
        return refusal(self._past)

    async def ask(self) -> Finding | None:
        """Have everything looked at that goes out now, and put in place what stands for it. Returns what keeps the
        request itself from going out: a no to its prompt."""
        screens = due(self._visit, self._past)
        pieces = {
            place: self._piece(place, part)
            for place, part in self._parts.items()
            if id(part) not in self._shown.held and not {each.id for each in screens} <= self._seen(part)
        }
        findings = await look(self._visit, screens, pieces)
        for place in pieces:
            self._seen(self._parts[place]).update(each.id for each in screens)
        stands: dict[str, Any] = {}
        no = None
        for found in findings:
            if found.is_refused and _is_prompt(self._parts[found.place]) and found.place == "0":
                no = no or found
                continue
            stands[found.place] = found.marker if found.is_refused else found.stands
            self._put(found.place, stands[found.place], is_held=found.is_refused)
        self.events += recorded(
            self._visit,
            self._slot,
            self._attempt,
            self._past,
            to=f"model {self._assistant}",
            asked=screens,
            pieces=pieces,
            findings=findings,
            stands=stands,
        )
        return no

    def take(self) -> list[e.Event]:
        """The events, for the commit that is made now."""
        taken, self.events = self.events, []
        return taken

    def _piece(self, place: str, part: Any) -> Piece:
        source, name = self._shown.source, self._visit.node
        if not _is_prompt(part):
            source, name = "tool", part.tool_name
        elif place != "0":
            source, name = "transcript", self._assistant
        return Piece(
            content=as_data(part.content),
            source=source,
            name=name,
            to="model",
            target=self._assistant,
            agent=self._visit.agent.graph_id,
            run_id=self._visit.run_id,
            is_restored=id(part) in self._shown.restored,
        )

    def _seen(self, part: Any) -> set[str]:
        """The hooks that said in this visit what they think of a part: it keeps its content, so they think so still."""
        return self._shown.seen.setdefault(id(part), set())

    def _put(self, place: str, content: Any, *, is_held: bool) -> None:
        part = self._parts[place]
        is_prompt = _is_prompt(part)
        part.content = str(content) if is_prompt and not isinstance(content, (str, list)) else content
        if isinstance(part.content, list):
            part.content = as_content(content, is_prompt=is_prompt)
        if is_held:
            self._shown.held.add(id(part))


def _is_prompt(part: Any) -> bool:
    return bool(part.part_kind == "user-prompt")


def _parts_of(messages: Sequence[Any]) -> list[Any]:
    """What was written by somebody else than the engine, the assistant's author and the model itself."""
    return [
        part
        for message in messages
        if message.kind == "request"
        for part in message.parts
        if part.part_kind in ("user-prompt", "tool-return")
    ]
