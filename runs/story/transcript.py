"""What was said between the run and its models, turn by turn, with the tool answers in between. A pure fold over the journal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ledger.present import masked
from runs.story.effects import message_of
from runs.story.lines import Line

_ROLES = {"system-prompt": "system", "user-prompt": "user", "tool-return": "tool", "retry-prompt": "tool"}


@dataclass
class Said:
    """One thing said. `role`: system, user, agent, tool, engine. `text` is for people, `data` what was structured."""

    role: str
    at: datetime
    seq: int
    text: str = ""
    data: Any = None
    tool: str = ""
    title: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass
class Talk:
    """One conversation: a `think` loop or a single model request."""

    name: str
    node: str
    at: datetime
    assistant: str = ""
    model: str = ""
    turns: int = 0
    said: list[Said] = field(default_factory=list)


@dataclass
class Transcript:
    """All conversations of a run in the order in which they began."""

    talks: list[Talk] = field(default_factory=list)
    _open: dict[str, Talk] = field(default_factory=dict)
    _node: str = ""

    def take(self, line: Line) -> None:
        """Fold one event in."""
        match line.kind:
            case "VisitEntered":
                self._node = line.clear["node"]
            case "ModelRequested":
                talk = self._talk(line)
                talk.assistant = line.clear["model"]
                talk.said.extend(asked(line))
            case "ModelResponded":
                talk = self._talk(line)
                talk.turns, talk.model = talk.turns + 1, line.get("model") or talk.model
                talk.said.extend(answered(line))
            case "ModelFailed":
                talk = self._talk(line)
                talk.said.append(
                    Said("engine", line.at, line.seq, message_of(line), title=f"request failed: {line.clear['code']}")
                )
            case "ToolRead" | "ToolReturned" | "ToolFailed" | "CallbackReceived":
                self._observed(line)

    def _talk(self, line: Line) -> Talk:
        name = line.clear["conversation"]
        talk = self._open.get(name)
        if talk is None:
            talk = self._open[name] = Talk(name=name, node=self._node, at=line.at)
            self.talks.append(talk)
        return talk

    def _observed(self, line: Line) -> None:
        """A tool's answer belongs to the conversation whose slot its own slot lies under."""
        talk = next((t for name, t in self._open.items() if (line.slot or "").startswith(f"{name}/")), None)
        if talk is None:
            return
        if line.kind == "ToolFailed":
            said = Said("tool", line.at, line.seq, message_of(line), title="refused")
        else:
            said = Said("tool", line.at, line.seq, data=masked(line.get("result", line.payload)))
        said.tool = line.clear["tool"]
        talk.said.append(said)


def asked(line: Line) -> list[Said]:
    """What a request adds: instructions, prompts, answers that no other event holds."""
    said = []
    for message in _messages(line.payload):
        if isinstance(message.get("instructions"), str) and message["instructions"]:
            said.append(Said("system", line.at, line.seq, message["instructions"], title="instructions"))
        if isinstance(message.get("prompt"), str):
            said.append(Said("user", line.at, line.seq, message["prompt"], title="prompt"))
        for part in _parts(message):
            role = _ROLES.get(str(part.get("part_kind", "")), "user")
            text, data = _content(part.get("content"))
            said.append(Said(role, line.at, line.seq, text, data, tool=str(part.get("tool_name") or "")))
    return said


def answered(line: Line) -> list[Said]:
    """What the model said: words, thoughts and the calls it asked for."""
    said = []
    for message in _messages(line.payload):
        for part in _parts(message):
            match part.get("part_kind"):
                case "tool-call":
                    text, data = _content(part.get("args"))
                    tool = str(part.get("tool_name", ""))
                    said.append(Said("agent", line.at, line.seq, text, data, tool=tool, title="calls"))
                case "thinking":
                    said.append(Said("agent", line.at, line.seq, str(part.get("content", "")), title="thinks"))
                case _:
                    text, data = _content(part.get("content"))
                    said.append(Said("agent", line.at, line.seq, text, data))
    if said:
        said[-1].tokens_in, said[-1].tokens_out = line.clear["tokens_in"], line.clear["tokens_out"]
    return said


def _messages(payload: Any) -> list[dict[str, Any]]:
    if isinstance(payload, dict):
        inner = next((payload[key] for key in ("messages", "message", "response") if key in payload), None)
        return _messages(inner) if inner is not None else [payload]
    return [message for message in payload if isinstance(message, dict)] if isinstance(payload, list) else []


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _content(content: Any) -> tuple[str, Any]:
    """Text as text; JSON, also JSON in a string as providers send arguments, as data."""
    if isinstance(content, str):
        if content[:1] in "{[" and content:
            try:
                return "", json.loads(content)
            except (ValueError, RecursionError):
                return content, None
        return content, None
    if isinstance(content, list) and all(isinstance(part, str) for part in content):
        return "\n".join(content), None
    return "", content
