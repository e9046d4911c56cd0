"""`manage.py runs start|wait|show|tail|pause|resume|cancel|retry`: actions of a named account through the API's
views."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from ledger.management import in_process
from ledger.management.in_process import INVALID, Caller, caller_of, inert

ACTS = ("pause", "resume", "cancel", "retry")
VERBS = ("start", "wait", "show", "tail", *ACTS)
ENDS = {"completed": 0, "failed": 10, "cancelled": 11}
WAITS_FOR_A_PERSON, TIME_IS_UP = 12, 13
_FIELDS = ("id", "agent", "version", "state", "reason", "why", "node", "created_at")
_POLL_SECONDS = 0.5


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--input", type=Path, metavar="FILE", help="for start: JSON, or -")
    parser.add_argument("--justification", default="", help="for each act: reason; recorded")
    parser.add_argument("--tag", action="append", default=[], help="for start: may be given several times")
    parser.add_argument("--business-key", default="", help="for start: such as an invoice number")
    parser.add_argument("--idempotency-key", default="", help="for start: a repetition returns the first run")
    parser.add_argument("--effects", choices=["undo", "leave"], help="for cancel: what to do with the run's effects")
    parser.add_argument("--timeout", type=float, help="for wait and tail: seconds (default: no limit)")
    parser.add_argument("--stop-at-person", action="store_true", help="for wait: end also when it waits for a person")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="for tail: only later events")


def carried_out(verb: str, run: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Carry out a verb, and yield the lines to print.
    Raises CommandError for a refusal, SystemExit with the code of a wait."""
    caller = caller_of(options)
    if verb == "start":
        yield from _run_lines(_start(caller, run, options), options)
        return
    try:
        path = f"runs/{UUID(run)}"
    except ValueError:
        raise CommandError(f"{inert(run)!r} isn't a run id", returncode=INVALID) from None
    if verb == "tail":
        yield from _tail(caller, path, options)
    elif verb == "wait":
        found, code = _wait(caller, path, options)
        yield from _run_lines(found, options)
        raise SystemExit(code)
    elif verb == "show":
        found = caller.get(path)
        yield from _run_lines(found, options)
    else:
        more = {"effects": options["effects"]} if verb == "cancel" and options["effects"] else {}
        body = {"justification": options["justification"], **more}
        yield from _run_lines(caller.post(f"{path}/{verb}", body), options)


def _run_lines(run: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a run, with the reason for its status."""
    status = {} if options["json"] else {"reason": run["status"]["reason"], "why": run["status"]["sentence"]}
    yield from in_process.output_lines(
        {**run, **status}, options, (*_FIELDS, *(["erased_at"] if run["erased_at"] else []))
    )


def _start(caller: Caller, agent: str, options: Mapping[str, Any]) -> Any:
    body = {"agent": agent, "input": _input(options["input"]), "tags": options["tag"]}
    if options["business_key"]:
        body["business_key"] = options["business_key"]
    return caller.post("runs", body, key=options["idempotency_key"])


def _input(path: Path | None) -> Any:
    if path is None:
        return {}
    try:
        return json.loads(sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"--input: cannot read {path}: {error.strerror}", returncode=INVALID) from None
    except ValueError as error:
        raise CommandError(f"--input: {path} is not JSON: {error}", returncode=INVALID) from None


def _wait(caller: Caller, path: str, options: Mapping[str, Any]) -> tuple[Any, int]:
    """Return the run and the exit code once the run has ended, or once the timeout has passed.
    With the option `stop_at_person`, also return once the run waits for a person."""
    until = None if options["timeout"] is None else time.monotonic() + options["timeout"]
    while True:
        found = caller.get(path)
        if found["state"] in ENDS:
            return found, ENDS[found["state"]]
        if options["stop_at_person"] and found["state"] == "waiting_human":
            return found, WAITS_FOR_A_PERSON
        if until is not None and time.monotonic() >= until:
            return found, TIME_IS_UP
        time.sleep(_POLL_SECONDS)


def _tail(caller: Caller, path: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield events as they come, until the run has ended. Raises SystemExit at the timeout."""
    until = None if options["timeout"] is None else time.monotonic() + options["timeout"]
    after = options["after"]
    while True:
        is_over = caller.get(path)["state"] in ENDS  # read before the events, so that the last events aren't missed
        while events := caller.get(f"{path}/events", after=after)["results"]:
            for each in events:
                line = f"{each['seq']:6}  {each['at']}  {each['kind']}  {inert(each['data'])}"
                yield json.dumps(each) if options["json"] else line
            after = events[-1]["seq"]
        if is_over:
            return
        if until is not None and time.monotonic() >= until:
            raise SystemExit(TIME_IS_UP)
        time.sleep(_POLL_SECONDS)
