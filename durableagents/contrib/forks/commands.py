"""`manage.py runs fork` and `runs start-again`.

With `--look` they show what would be repeated and change nothing. The output of `start-again --look` is the file for
`--audit`, once each effect has a verdict. Output is JSON in ASCII, so that no text in it can control a terminal.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from durableagents.contrib.forks.forking import ForkRequest, as_json, fork, prepare
from durableagents.contrib.forks.points import visits_of
from durableagents.contrib.forks.starting_again import (
    NOT_GIVEN,
    StartAgainRequest,
    Verdict,
    read_remains,
    start_again,
)
from ledger.errors import InvalidInput
from ledger.web import strict_json
from runs.engine.forks import Evidence
from runs.management.shell import operator
from runs.services import lifecycle

_OPTIONS_OF_OTHERS = {"fork": ("audit", "input"), "start-again": ("visit", "if_effects")}
_MAX_SHOWN = ("tool", "at", "outcome", "external_id", "arguments", "has_result", "result", "is_verified")


class _Entry(BaseModel):
    """The verdict on one effect. `seen` is a copy of the effect as `--look` printed it, and is ignored."""

    model_config = ConfigDict(extra="forbid")
    run: str = ""
    slot: str
    attempt: int
    counts_as: str
    result: Any = None
    sender_is_gone: bool = False
    seen: Any = None


class _Audit(BaseModel):
    model_config = ConfigDict(extra="forbid")
    effects: list[_Entry] = Field(max_length=100_000)
    problems: list[str] = []
    all_are_asked_about: bool = False


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `fork`. Two of them also apply to `start-again`."""
    parser.add_argument("--look", action="store_true", help="for fork and start-again: show what would be repeated")
    parser.add_argument("--onto", default="", metavar="VERSION", help="for fork and start-again: another version")
    parser.add_argument("--visit", type=int, default=None, help="for fork: the visit at which it begins")
    parser.add_argument("--if-effects", type=int, default=None, help="for fork: only with this number of effects after")


def add_audit_argument(parser: ArgumentParser) -> None:
    """Add the option that only `start-again` has. The option `--input` is the same as that of `start`."""
    parser.add_argument("--audit", type=Path, metavar="FILE", help="for start-again: verdicts on effects, see --look")


def fork_lines(run_id: UUID, options: Mapping[str, Any]) -> Iterator[str]:
    """Fork a run and yield the new run's id. Raises the errors of `forking.fork`.

    With `--look`, yield the run's visits, or the effects after one visit.
    """
    _check_options("fork", options)
    run = lifecycle.find(run_id)
    if options["visit"] is None:
        if not options["look"]:
            raise InvalidInput("--visit is missing. It names the visit at which the fork begins: see --look.")
        for each in visits_of(run):
            fields = {"visit": each.visit, "node": each.node, "at": each.at.isoformat(timespec="seconds")}
            yield json.dumps(fields | ({"problem": each.problem} if each.problem else {}))
        return
    request = ForkRequest(options["visit"], version=options["onto"], seen=options["if_effects"])
    if not options["look"]:
        yield str(fork(run_id, request, by=operator(), justification=options["justification"]).pk)
        return
    point = (ready := prepare(run, request)).point
    yield json.dumps({"node": point.visit.node, "state": ready.state, "all_are_asked_about": point.fences_all})
    yield from map(json.dumps, as_json(point.effects))


def start_again_lines(run_id: UUID, options: Mapping[str, Any]) -> Iterator[str]:
    """Start a run again and yield the new run's id. Raises the errors of `starting_again.start_again`.

    With `--look`, yield the audit to fill in.
    """
    _check_options("start-again", options)
    if options["look"]:
        found = read_remains(lifecycle.find(run_id))
        audit = {
            "effects": [_unfilled(effect) for effect in found.effects],
            "problems": found.problems,
            "all_are_asked_about": found.fences_all,
        }
        yield json.dumps(audit, indent=1)
        return
    entries: list[_Entry] = []
    if options["audit"] is not None:
        try:
            entries = _Audit.model_validate(_read(options["audit"])).effects
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in error.errors(include_url=False)[:5]]
            raise InvalidInput(f"{options['audit']} is not what --look prints: {'; '.join(problems)}") from None
    request = StartAgainRequest(
        [_verdict(entry) for entry in entries],
        version=options["onto"],
        input=NOT_GIVEN if options["input"] is None else _read(options["input"]),
    )
    yield str(start_again(run_id, request, by=operator(), justification=options["justification"]).pk)


def _check_options(verb: str, options: Mapping[str, Any]) -> None:
    """Refuse options that belong to the other command, since it may be the intended one. Raises InvalidInput."""
    given = [f"--{name.replace('_', '-')}" for name in _OPTIONS_OF_OTHERS[verb] if options[name] is not None]
    if given:
        raise InvalidInput(f"{verb} has no option {', '.join(given)}. Nothing was done.")


def _unfilled(effect: Evidence) -> dict[str, Any]:
    seen = {name: value for name, value in effect.as_json().items() if name in _MAX_SHOWN}
    return {"run": effect.run, "slot": effect.slot, "attempt": effect.attempt, "counts_as": "", "seen": seen}


def _verdict(entry: _Entry) -> Verdict:
    result = entry.result if "result" in entry.model_fields_set else NOT_GIVEN
    return Verdict(
        entry.slot, entry.attempt, entry.counts_as, run=entry.run, result=result, sender_is_gone=entry.sender_is_gone
    )


def _read(path: Path) -> Any:
    try:
        return strict_json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from None
