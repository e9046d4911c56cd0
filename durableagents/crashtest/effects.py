"""Read outside effects from the upstream's own record (a file, an address, a function), or else from calls that left
the workers."""

from __future__ import annotations

import importlib
import ipaddress
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from durableagents.env import EnvironmentProblem
from ledger.redacted import masked_key
from runs.certification import observing

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>|]+")
_SECRET = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|sig|session|jwt|bearer|code|access|api|private|hash", re.IGNORECASE
)
_LONGEST_PLAIN = 24  # a longer value may be a secret whatever its name
HIDDEN = "***"


def without_secrets(text: str) -> str:
    """Return a text with credentials and possible secrets in its URLs hidden."""
    return _ADDRESS.sub(lambda found: _shown(found.group()), text)


def is_here(address: str) -> bool:
    """Return whether a URL is on this host."""
    try:
        split = urlsplit(address)
        host = split.hostname or ""
        if split.scheme not in ("http", "https"):
            return False
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(address: str) -> str:
    try:
        split = urlsplit(address)
        place = _place(split)
    except ValueError:
        return f"{address.partition('://')[0]}://{HIDDEN}"
    query = "&".join(map(_part, split.query.split("&")))
    return f"{split.scheme}://{place}{split.path}{f'?{query}' if query else ''}{f'#{HIDDEN}' if split.fragment else ''}"


def _place(split: SplitResult) -> str:
    """Return the part after the last @: anything before it is user and password."""
    _, at, place = split.netloc.rpartition("@")
    if split.port == 0:  # a non-numeric port raises ValueError: it may be part of a password
        raise ValueError
    return f"{HIDDEN}@{place}" if at else place


def _part(part: str) -> str:
    """Return a query's part with its value hidden if secret; nameless parts are hidden."""
    name, equals, value = part.partition("=")
    if part and (not equals or len(name) > _LONGEST_PLAIN):
        return HIDDEN
    return f"{name}={HIDDEN}" if _SECRET.search(unquote(name)) or len(value) > _LONGEST_PLAIN else part


# Crash points of a tool's call, and those outside any call.
AT_TOOL = ("CP1", "CP2", "CP3", "CP4", "CP6")
AT_RUN = ("CP0", "CP5", "CP7", "CP8", "CP9")
THE_RUN = ""  # the tool of a case outside any call


@dataclass(frozen=True, slots=True)
class Asked:
    """The test's parameters. `answers` are people's: `approve` (true), `answers`, `signals`, and `receipts` by tool."""

    agent: str
    input: Any
    tools: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    effects: str = ""
    patience: float = 60.0
    workers: int = 3

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Case:
    """One run and its crash point; without one, the undisturbed run."""

    tool: str
    point: str

    def armed(self, run_id: object) -> str:
        """Return the crash point as runs/failpoints.py reads it."""
        return f"{self.point}{f'@{self.tool}' if self.tool else ''}/{run_id}:kill:1"


def filled(value: Any, case: str) -> Any:
    """Return a run's input, with `{case}` in texts replaced, for what must not be ordered twice."""
    if isinstance(value, dict):
        return {name: filled(each, case) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, case) for each in value]
    return value.replace("{case}", case) if isinstance(value, str) else value


LONGEST_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect, of a call by its key or of a run by its id."""

    tool: str
    key: str | None
    run: str | None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Source:
    """The source of effects; if empty, the calls that left the workers."""

    where: str
    record: Path

    def read(self) -> list[Effect]:
        """Return all present effects. Raises EnvironmentProblem in one line."""
        if not self.where:
            return list(left_in(observing.read(self.record)))
        try:
            return [effect for row in _rows(self._given()) if (effect := _effect(row)) is not None]
        except EnvironmentProblem:
            raise
        except Exception as error:
            raise EnvironmentProblem(without_secrets(f"--effects {self.where} can't be read: {error}")) from error

    def _given(self) -> Any:
        if self.where.startswith(("http://", "https://")):
            answer = httpx.get(self.where, timeout=LONGEST_ANSWER_SECONDS, trust_env=False)
            answer.raise_for_status()
            return answer.json()
        module, colon, name = self.where.partition(":")
        if colon and "/" not in self.where:
            return getattr(importlib.import_module(module), name)()
        path = Path(self.where)
        if not path.exists():
            return []
        text = path.read_text()
        return [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".jsonl" else json.loads(text)


def _rows(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, dict):
        given = next((value for value in given.values() if isinstance(value, list)), given)
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        raise EnvironmentProblem("the effects are no list of objects, each with a key or a run")
    return given


def _effect(row: dict[str, Any]) -> Effect | None:
    if row.get("executed") is False:
        return None
    first = lambda *names: next((row[name] for name in names if row.get(name) is not None), None)  # noqa: E731
    tool, key, run = first("tool", "operation"), first("key", "idempotency_key"), first("run", "run_id")
    return Effect(
        str(tool or ""),
        None if key is None else masked_key(str(key)),
        None if run is None else str(run),
        first("result", "receipt"),
    )


def left_in(lines: Iterable[dict[str, Any]]) -> Iterable[Effect]:
    """Return one effect per key, as if honoured, and one per call without; raised calls had none, unless unknown."""
    seen: dict[tuple[str, str], Effect] = {}
    for n, line in enumerate(lines):
        name = line["key"] or f"{line['run']} {line['slot']} {line['attempt']}"
        if line["what"] == "left":
            number = "" if line["key"] else str(n)
            seen[name, number] = Effect(line["tool"], line["key"], line["run"])
        elif line["what"] == "done":
            mine = [at for at in seen if at[0] == name]
            if mine:
                seen[mine[-1]] = Effect(line["tool"], line["key"], line["run"], line.get("result"))
        elif line["what"] == "raised" and str(line.get("error", "")).startswith(("NotSent", "BusinessFailure")):
            for at in [at for at in seen if at[0] == name and seen[at].result is None][-1:]:
                del seen[at]
    return seen.values()
