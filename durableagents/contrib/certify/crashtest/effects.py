"""Read the effects in upstream systems, and the parameters of a crash test.

Effects come from the upstream system's own record (a file, a URL, a function), or else from the calls that the
workers sent.
"""

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

from durableagents.contrib.certify import call_record
from durableagents.env import EnvironmentProblem
from ledger.redacted import masked_key

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>|]+")
_SECRET = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|sig|session|jwt|bearer|code|access|api|private|hash", re.IGNORECASE
)
_MAX_PLAIN = 24  # longer values are masked, since they may be secret under any name
HIDDEN = "***"


def without_secrets(text: str) -> str:
    """Return a text with credentials and possible secrets in URLs masked."""
    return _ADDRESS.sub(lambda match: _masked(match.group()), text)


def is_loopback(address: str) -> bool:
    """Return whether a URL is on this host."""
    try:
        split = urlsplit(address)
        host = split.hostname or ""
        if split.scheme not in ("http", "https"):
            return False
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _masked(address: str) -> str:
    try:
        split = urlsplit(address)
        host = _host(split)
    except ValueError:
        return f"{address.partition('://')[0]}://{HIDDEN}"
    query = "&".join(map(_masked_part, split.query.split("&")))
    return f"{split.scheme}://{host}{split.path}{f'?{query}' if query else ''}{f'#{HIDDEN}' if split.fragment else ''}"


def _host(split: SplitResult) -> str:
    """Return host and port, with user and password masked. Raises ValueError."""
    _, at, host = split.netloc.rpartition("@")
    if split.port == 0:  # a port that isn't a number raises ValueError: it may be part of a password
        raise ValueError
    return f"{HIDDEN}@{host}" if at else host


def _masked_part(part: str) -> str:
    """Return a part of a query, with its value masked if it may be secret. Parts without a name are masked."""
    name, equals, value = part.partition("=")
    if part and (not equals or len(name) > _MAX_PLAIN):
        return HIDDEN
    return f"{name}={HIDDEN}" if _SECRET.search(unquote(name)) or len(value) > _MAX_PLAIN else part


# Crash points of a tool's call, and crash points outside any call.
TOOL_POINTS = ("CP1", "CP2", "CP3", "CP4", "CP6")
RUN_POINTS = ("CP0", "CP5", "CP7", "CP8", "CP9")
NO_TOOL = ""  # used instead of a tool's name in a case outside any call


@dataclass(frozen=True, slots=True)
class CrashTest:
    """Parameters of a test.

    `answers` tells the simulated people what to do: `approve` (true), `answers`, `signals`, and `receipts` by tool.
    """

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
    """One run and its crash point. The run without a crash has no crash point."""

    tool: str
    point: str

    def armed(self, run_id: object) -> str:
        """Return the crash point in the form that runs/failpoints.py reads."""
        return f"{self.point}{f'@{self.tool}' if self.tool else ''}/{run_id}:kill:1"


def fill_case(value: Any, case: str) -> Any:
    """Return a run's input, with `{case}` in texts replaced by the name of the case."""
    if isinstance(value, dict):
        return {name: fill_case(each, case) for name, each in value.items()}
    if isinstance(value, list):
        return [fill_case(each, case) for each in value]
    return value.replace("{case}", case) if isinstance(value, str) else value


READ_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect: of a call, identified by its key, or of a run, identified by its id."""

    tool: str
    key: str | None
    run: str | None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Source:
    """The source of effects. If it is empty, the source is the calls that the workers sent."""

    where: str
    record: Path

    def read(self) -> list[Effect]:
        """Return all effects that exist now. Raises EnvironmentProblem with a one-line message."""
        if not self.where:
            return list(effects_of_calls(call_record.read(self.record)))
        try:
            return [effect for row in _rows(self._read()) if (effect := _effect(row)) is not None]
        except EnvironmentProblem:
            raise
        except Exception as error:
            raise EnvironmentProblem(without_secrets(f"--effects {self.where} can't be read: {error}")) from error

    def _read(self) -> Any:
        if self.where.startswith(("http://", "https://")):
            response = httpx.get(self.where, timeout=READ_TIMEOUT_SECONDS, trust_env=False)
            response.raise_for_status()
            return response.json()
        module, colon, name = self.where.partition(":")
        if colon and "/" not in self.where:
            return getattr(importlib.import_module(module), name)()
        path = Path(self.where)
        if not path.exists():
            return []
        text = path.read_text()
        return [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".jsonl" else json.loads(text)


def _rows(record: Any) -> list[dict[str, Any]]:
    if isinstance(record, dict):
        record = next((value for value in record.values() if isinstance(value, list)), record)
    if not isinstance(record, list) or not all(isinstance(row, dict) for row in record):
        raise EnvironmentProblem("--effects must be a list of objects, each with a key or a run")
    return record


def _effect(row: dict[str, Any]) -> Effect | None:
    if row.get("executed") is False:
        return None

    def first(*names: str) -> Any:
        return next((row[name] for name in names if row.get(name) is not None), None)

    tool, key, run = first("tool", "operation"), first("key", "idempotency_key"), first("run", "run_id")
    return Effect(
        str(tool or ""),
        None if key is None else masked_key(str(key)),
        None if run is None else str(run),
        first("result", "receipt"),
    )


def effects_of_calls(lines: Iterable[dict[str, Any]]) -> Iterable[Effect]:
    """Return one effect for each key (as if the upstream system honoured keys), and one for each call without a key.

    Calls that raised NotSent or BusinessFailure had no effect.
    """
    effects: dict[tuple[str, str], Effect] = {}
    for n, line in enumerate(lines):
        name = line["key"] or f"{line['run']} {line['slot']} {line['attempt']}"
        if line["what"] == "left":
            number = "" if line["key"] else str(n)
            effects[name, number] = Effect(line["tool"], line["key"], line["run"])
        elif line["what"] == "done":
            same = [at for at in effects if at[0] == name]
            if same:
                effects[same[-1]] = Effect(line["tool"], line["key"], line["run"], line.get("result"))
        elif line["what"] == "raised" and str(line.get("error", "")).startswith(("NotSent", "BusinessFailure")):
            for at in [at for at in effects if at[0] == name and effects[at].result is None][-1:]:
                del effects[at]
    return effects.values()
