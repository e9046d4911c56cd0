"""`manage.py runs fork` and `runs start-again`: the same acts as the API's and the console's, on a shell of the server.

`--look` shows and changes nothing; what `start-again --look` prints is the file that `--audit` takes, once somebody has
said of each effect what it counts as. All that is printed is JSON in ASCII: no text in it does anything to a terminal.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.errors import DurableAgentsError, NotFound
from ledger.web import strict_json
from ledger.web.roles import OPERATOR
from runs.engine.forks import Evidence
from runs.management import shell
from runs.management.shell import operator
from runs.models import Run
from runs.queries.why.answer import why
from runs.queries.why.seen import Reader, look_at
from runs.queries.why.words import at
from runs.services import lifecycle
from runs.services.forks import forking
from runs.services.forks.forking import NOT_GIVEN, Wanted
from runs.services.forks.points import points
from runs.services.forks.starting_again import Again, Verdict, remains, start_again

VERB = "why"


class NotAsked(Exception):
    """One line that says why nothing can be told."""


def told(run: str) -> Iterator[str]:
    """The answer in lines that do nothing to a terminal. Raises NotAsked."""
    try:
        seen = look_at(UUID(run))
    except ValueError:
        raise NotAsked(f"{run!r} isn't a run id") from None
    except NotFound as error:
        raise NotAsked(error.detail) from error
    found = why(seen, Reader(shell.operator(), frozenset({OPERATOR})))
    who = found.who
    whom = ", ".join(who.roles) if who.kind == "people" else who.kind
    yield f"cause     {found.cause}"
    yield f"why       {_inert(' '.join(filter(None, [found.sentence, found.also])))}"
    whom += f" at {who.queue}" if who.queue else ""
    whom += f", but not {who.but}" if who.but else ""
    yield f"who       {_inert(whom)}"
    yield f"since     {at(found.since)}{f', until {at(found.until)}' if found.until else ''}"
    for one in found.evidence:
        where = f"{f', event {one.seq}' if one.seq else ''}{f', run {one.run}' if one.run else ''}"
        yield f"evidence  {_inert(one.what)}{where}"
    for offer in found.acts:
        may = "may" if offer.is_allowed else f"may not: {_inert(offer.why_not)}"
        yield f"{offer.act:9} {offer.method} {_inert(offer.path)}  {may}"


def _inert(text: str) -> str:
    """Text as printable ASCII: a control character is written as its number."""
    return json.dumps(text)[1:-1].replace('\\"', '"')


VERBS = ("fork", "start-again")
# The options of one verb, by the other.
_OF_ANOTHER = {
    "fork": ("audit", "input"),
    "start-again": ("visit", "begin_with", "if_effects"),
}


class NotDone(Exception):
    """The request was refused, with the reason in one line. Nothing has changed."""


class _Said(BaseModel):
    """A person's verdict on one effect. `seen` is the text shown by `--look`; it has no meaning as input."""

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
    effects: list[_Said] = Field(max_length=100_000)
    problems: list[str] = []
    all_are_asked_about: bool = False


def add_arguments(parser: ArgumentParser) -> None:
    """Those of both verbs."""
    fork, again = "of fork: ", "of start-again: "
    parser.add_argument("--look", action="store_true", help="of fork and start-again: only show what would be")
    parser.add_argument("--visit", type=int, default=None, help=f"{fork}where it begins")
    parser.add_argument("--onto", default="", metavar="VERSION", help="of both: another version of the same agent")
    parser.add_argument("--begin-with", type=Path, metavar="FILE", help=f"{fork}the state to begin with, as JSON")
    parser.add_argument("--if-effects", type=int, default=None, help=f"{fork}only if the run did so many after that")
    parser.add_argument("--audit", type=Path, metavar="FILE", help=f"{again}what each effect counts as: see --look")
    parser.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help=f"{again}where the recorded one can't be read; of start: JSON, or -",
    )
    parser.add_argument("--justification", default="", help="of each act: why; goes on record")


def carried_out(verb: str, run_id: str, given: dict[str, Any]) -> Iterator[str]:
    """The lines to print: what is seen, or the new run's id. Raises NotDone."""
    _must_be_its_own(verb, given)
    try:
        run = lifecycle.find(UUID(run_id))
    except ValueError:
        raise NotDone(f"{run_id!r} isn't a run id") from None
    except DurableAgentsError as error:
        raise NotDone(error.detail) from None
    try:
        if given["look"]:
            yield from _look(run, given) if verb == "fork" else [_document(run)]
        else:
            yield str((_fork if verb == "fork" else _again)(run, given).pk)
    except DurableAgentsError as refused:
        errors = "; ".join(f"{x['field']} {x['problem']}" for x in refused.extra.get("errors", []))
        raise NotDone(f"{refused.detail} {errors}".strip()) from None


def _must_be_its_own(verb: str, given: dict[str, Any]) -> None:
    """An option that says something of the other verb isn't left unheard: what was meant may be the other act. Raises
    NotDone."""
    named = [f"--{name.replace('_', '-')}" for name in _OF_ANOTHER[verb] if given[name] is not None]
    if named:
        (other,) = {*VERBS} - {verb}
        raise NotDone(f"{', '.join(named)} can't be said of {verb}, only of {other}: nothing was done")


def _look(run: Run, given: dict[str, Any]) -> Iterator[str]:
    """A line for each visit; of one that is named, for each effect after it."""
    if given["visit"] is None:
        for x in points(run):
            told = {"visit": x.visit, "node": x.node, "at": x.at.isoformat(timespec="seconds")}
            yield json.dumps(told | ({"problem": x.problem} if x.problem else {}))
        return
    ready = forking.prepared(run, _wanted(given))
    yield json.dumps({"node": ready.cut.point.node, "state": ready.state, "all_are_asked_about": ready.cut.fences_all})
    for effect in ready.cut.effects:
        yield json.dumps(effect.as_json())


def _document(run: Run) -> str:
    found = remains(run)
    effects = [
        {"run": x.run, "slot": x.slot, "attempt": x.attempt, "counts_as": "", "seen": _seen(x)} for x in found.effects
    ]
    told = {"effects": effects, "problems": found.problems, "all_are_asked_about": found.fences_all}
    return json.dumps(told, indent=1)


def _seen(effect: Evidence) -> dict[str, Any]:
    shown = ("tool", "at", "outcome", "external_id", "arguments", "has_result", "result", "is_verified")
    return {name: value for name, value in effect.as_json().items() if name in shown}


def _wanted(given: dict[str, Any]) -> Wanted:
    if given["visit"] is None:
        raise NotDone("--visit says where the fork begins: see --look")
    return Wanted(
        given["visit"],
        version=given["onto"],
        state=_given(given["begin_with"]),
        seen=given["if_effects"],
    )


def _fork(run: Run, given: dict[str, Any]) -> Run:
    return forking.fork(run.pk, _wanted(given), by=operator(), justification=given["justification"])


def _again(run: Run, given: dict[str, Any]) -> Run:
    audit: list[_Said] = []
    if given["audit"] is not None:
        try:
            audit = _Audit.model_validate(_read(given["audit"])).effects
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in error.errors(include_url=False)[:5])
            raise NotDone(f"{given['audit']} is not what --look prints: {told}") from None
    wanted = Again([_verdict(x) for x in audit], version=given["onto"], input=_given(given["input"]))
    return start_again(run.pk, wanted, by=operator(), justification=given["justification"])


def _verdict(said: _Said) -> Verdict:
    result = said.result if "result" in said.model_fields_set else NOT_GIVEN
    return Verdict(
        said.slot, said.attempt, said.counts_as, run=said.run, result=result, sender_is_gone=said.sender_is_gone
    )


def _given(path: Path | None) -> Any:
    return NOT_GIVEN if path is None else _read(path)


def _read(path: Path) -> Any:
    try:
        return strict_json.loads(path.read_bytes())
    except OSError as error:
        raise NotDone(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise NotDone(f"{path} is not JSON: {error}") from None
