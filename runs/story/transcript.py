"""Messages between the run and its models, turn by turn, with tool results in between.
This is a pure projection that records speakers and times. Texts are only read from payloads when they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ledger.api.present import masked
from ledger.codec import is_too_deep, read_json
from ledger.kinds import COMPACTS
from runs.engine.content.files import in_words
from runs.engine.thinking.notes import FROM_PEOPLE
from runs.story.effects import message_of
from runs.story.lines import EventLine, Fact

_ROLES = {"system-prompt": "system", "user-prompt": "user", "tool-return": "tool", "retry-prompt": "tool"}


@dataclass(slots=True)
class TranscriptMessage:
    """One message.
    `role` is system, user, agent, tool or engine. `text` is for people, `data` is structured content."""

    role: str
    at: datetime
    seq: int
    text: str = ""
    data: Any = None
    tool: str = ""
    title: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None

    @property
    def face(self) -> int:
        """Return a key that changes with the message's HTML."""
        return hash(
            (
                self.role,
                self.at,
                self.seq,
                self.text,
                repr(self.data),
                self.tool,
                self.title,
                self.tokens_in,
                self.tokens_out,
            )
        )


@dataclass(slots=True)
class Talk:
    """One conversation: a `think` loop or a single model request, with its events and the model's answers.
    `said` and `model` are filled in for the shown events. `counts` caches the number of messages in the first
    events."""

    name: str
    node: str
    at: datetime
    assistant: str = ""
    model: str = ""
    turns: int = 0
    said: list[TranscriptMessage] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


Opener = Callable[[Iterable[int]], Mapping[int, EventLine]]


@dataclass
class Transcript:
    """All conversations of a run in order of start, and the events with messages.
    Most views don't need them, so events are only collected in `heard` (kind, seq, time, then node, conversation or
    slot, and assistant) and sorted on demand. `heard` is one flat list, because the garbage collector would traverse a
    tuple for each event."""

    heard: list[Any] = field(default_factory=list)
    _talks: list[Talk] = field(default_factory=list)
    _events: list[int] = field(default_factory=list)
    _owners: list[int] = field(default_factory=list)
    _open: dict[str, int] = field(default_factory=dict)
    _node: str = ""

    @property
    def talks(self) -> list[Talk]:
        self._tell_apart()
        return self._talks

    @property
    def events(self) -> list[int]:
        self._tell_apart()
        return self._events

    @property
    def owners(self) -> list[int]:
        self._tell_apart()
        return self._owners

    def _tell_apart(self) -> None:
        each = iter(self.heard)
        for kind, seq, at, name, assistant in zip(each, each, each, each, each, strict=True):
            match kind:
                case "VisitEntered":
                    self._node = name
                case "ModelRequested" | "ModelResponded" | "ModelFailed":
                    talk = self._talk(seq, at, name)
                    if kind == "ModelRequested":
                        talk.assistant = assistant
                    elif kind == "ModelResponded":
                        talk.turns += 1
                        talk.answers.append(seq)
                case _:
                    self._observed(seq, name)
        self.heard.clear()

    def _talk(self, seq: int, at: datetime, name: str) -> Talk:
        n = self._open.get(name)
        if n is None:
            n = self._open[name] = len(self._talks)
            self._talks.append(Talk(name=name, node=self._node, at=at))
        return self._note(seq, n)

    def _observed(self, seq: int, slot: str) -> None:
        """Add a tool's result to the first conversation whose slot is a prefix of the result's slot."""
        names = (slot[:n] for n, letter in enumerate(slot) if letter == "/")
        known = [self._open[name] for name in names if name in self._open]
        if known:
            self._note(seq, min(known))

    def _note(self, seq: int, n: int) -> Talk:
        self._events.append(seq)
        self._owners.append(n)
        self._talks[n].events.append(seq)
        return self._talks[n]

    def shown(self) -> list[Talk]:
        """Return copies of the conversations, for readers that don't hold the fold's lock."""
        return [
            Talk(
                talk.name,
                talk.node,
                talk.at,
                talk.assistant,
                turns=talk.turns,
                events=talk.events[:],
                answers=talk.answers[:],
                counts=talk.counts[:],
            )
            for talk in self.talks
        ]


def _entered(transcript: Transcript, line: Fact) -> None:
    transcript.heard.extend((line.kind, line.seq, line.at, line.clear["node"], ""))


def _requested(transcript: Transcript, line: Fact) -> None:
    transcript.heard.extend((line.kind, line.seq, line.at, line.clear["conversation"], line.clear["model"]))


def _answered(transcript: Transcript, line: Fact) -> None:
    transcript.heard.extend((line.kind, line.seq, line.at, line.clear["conversation"], ""))


def _observed(transcript: Transcript, line: Fact) -> None:
    transcript.heard.extend((line.kind, line.seq, line.at, line.slot or "", ""))


STEPS: dict[str, Callable[[Transcript, Fact], None]] = {
    "VisitEntered": _entered,
    "ModelRequested": _requested,
    "ModelResponded": _answered,
    "ModelFailed": _answered,
    "ToolRead": _observed,
    "ToolReturned": _observed,
    "ToolFailed": _observed,
    "CallbackReceived": _observed,
}


def latest(talks: list[Talk], most: int, opened: Opener) -> list[Talk]:
    """Return the conversations that contain the latest `most` messages."""
    upcoming: list[int] = []
    for talk in reversed(talks):
        if len(upcoming) >= most:
            break
        upcoming += talk.events[len(upcoming) - most :]
    opened(upcoming)
    conversations: list[Talk] = []
    for talk in reversed(talks):
        if most <= 0:
            break
        parts = last_said(talk, most, opened)
        talk.said = parts[-most:]
        talk.model = model_of(talk, opened)
        most -= len(parts)
        conversations.append(talk)
    return conversations[::-1]


def last_said(talk: Talk, most: int, opened: Opener) -> list[TranscriptMessage]:
    """Return at least the last `most` messages of a conversation.
    An event may have several messages, or none."""
    parts: list[TranscriptMessage] = []
    end = len(talk.events)
    while end > 0 and len(parts) < most:
        some = talk.events[max(end - most, 0) : end]
        lines = opened(some)
        parts = [message for seq in some if seq in lines for message in said_in(lines[seq])] + parts
        end -= len(some)
    return parts


_AT_ONCE = 20


def model_of(talk: Talk, opened: Opener) -> str:
    """Return the model named by the latest answer that names one."""
    end, size = len(talk.answers), 1
    while end > 0:
        some = talk.answers[max(end - size, 0) : end]
        lines = opened(some)
        if name := next((name for seq in reversed(some) if seq in lines and (name := lines[seq].get("model"))), ""):
            return str(name)
        end, size = end - len(some), _AT_ONCE
    return ""


def said_in(line: EventLine) -> list[TranscriptMessage]:
    """Return an event's messages; none if the event can't be trusted."""
    if line.damage:
        return []
    match line.kind:
        case "ModelRequested":
            return prompts(line)
        case "ModelResponded":
            return answered(line)
        case "ModelFailed":
            return [
                TranscriptMessage(
                    "engine", line.at, line.seq, message_of(line), title=f"request failed: {line.clear['code']}"
                )
            ]
        case "ToolFailed":
            return [
                TranscriptMessage("tool", line.at, line.seq, message_of(line), title="refused", tool=line.clear["tool"])
            ]
        case _:
            return [
                TranscriptMessage(
                    "tool", line.at, line.seq, data=masked(line.get("result", line.payload)), tool=line.clear["tool"]
                )
            ]


def prompts(line: EventLine) -> list[TranscriptMessage]:
    """Return the messages that a request adds: instructions, prompts, and results that no other event contains."""
    messages = []
    for message in _messages(line.payload):
        if isinstance(message.get(COMPACTS), int):
            what = f"The {message[COMPACTS]} oldest messages are summarised; from here on, the summary replaces them."
            messages.append(TranscriptMessage("engine", line.at, line.seq, what, title="nears the window"))
            continue
        if isinstance(message.get("instructions"), str) and message["instructions"]:
            messages.append(
                TranscriptMessage("system", line.at, line.seq, message["instructions"], title="instructions")
            )
        if isinstance(message.get("prompt"), (str, list)):
            messages.append(TranscriptMessage("user", line.at, line.seq, in_words(message["prompt"]), title="prompt"))
        notes = message.get(FROM_PEOPLE)
        for text in notes if isinstance(notes, list) else ():
            messages.append(TranscriptMessage("user", line.at, line.seq, str(text), title="an operator"))
        for part in _parts(message):
            role = _ROLES.get(str(part.get("part_kind", "")), "user")
            text, data = _content(part.get("content"))
            messages.append(
                TranscriptMessage(role, line.at, line.seq, text, data, tool=str(part.get("tool_name") or ""))
            )
    return messages


def answered(line: EventLine) -> list[TranscriptMessage]:
    """Return an answer's messages: the model's text, thoughts and calls."""
    messages = []
    for message in _messages(line.payload):
        for part in _parts(message):
            match part.get("part_kind"):
                case "tool-call":
                    text, data = _content(part.get("args"))
                    tool = str(part.get("tool_name", ""))
                    messages.append(TranscriptMessage("agent", line.at, line.seq, text, data, tool=tool, title="calls"))
                case "thinking":
                    messages.append(
                        TranscriptMessage("agent", line.at, line.seq, str(part.get("content", "")), title="thinks")
                    )
                case _:
                    text, data = _content(part.get("content"))
                    messages.append(TranscriptMessage("agent", line.at, line.seq, text, data))
    if messages:
        messages[-1].tokens_in, messages[-1].tokens_out = line.clear["tokens_in"], line.clear["tokens_out"]
    return messages


def _messages(payload: Any) -> list[dict[str, Any]]:
    if isinstance(payload, dict):
        inner = next((payload[key] for key in ("messages", "message", "response") if key in payload), None)
        return _messages(inner) if inner is not None else [payload]
    return [message for message in payload if isinstance(message, dict)] if isinstance(payload, list) else []


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _content(content: Any) -> tuple[str, Any]:
    """Return text as text, and JSON (even within a string) as data. Invalid or too deeply nested JSON stays text."""
    if isinstance(content, str):
        if content[:1] in "{[" and content:
            try:
                data = read_json(content)
            except (ValueError, RecursionError):
                return content, None
            return (content, None) if is_too_deep(data) else ("", data)
        return content, None
    if isinstance(content, list) and all(isinstance(part, str) for part in content):
        return "\n".join(content), None
    return "", content
