"""What was done outside, by the other side's own record: a file, an address, a function; or, where there is none, by
what left the workers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from durableagents.crashtest.addresses import without_secrets
from durableagents.env import EnvironmentProblem
from runs.certification import recorder

LONGEST_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect. It belongs to a call by its key, or to a run by that run's id."""

    tool: str
    key: str | None
    run: str | None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where effects are read. Empty: from what left the workers."""

    where: str
    record: Path

    def read(self) -> list[Effect]:
        """All that there is now. Raises EnvironmentProblem in one line."""
        if not self.where:
            return list(left_in(recorder.read(self.record)))
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
    """None for a request that had no effect."""
    if row.get("executed") is False:
        return None
    first = lambda *names: next((row[name] for name in names if row.get(name) is not None), None)  # noqa: E731
    tool, key, run = first("tool", "operation"), first("key", "idempotency_key"), first("run", "run_id")
    return Effect(
        str(tool or ""),
        None if key is None else str(key),
        None if run is None else str(run),
        first("result", "receipt"),
    )


def left_in(lines: Iterable[dict[str, Any]]) -> Iterable[Effect]:
    """One effect for each key that left, as if it were honoured, and one for each call without a key. What raised had
    none, unless nobody can tell."""
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
