"""Runs one visit of a node. The node starts from the top each time, and the journal answers its recorded calls."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ledger.kinds import CONTENT_REFUSED
from runs.engine.agents import Agent, End, Node
from runs.engine.canonical import as_recorded, plain, printable
from runs.engine.context import Context
from runs.engine.continuation import HandedOver, Handoff, Renew, Renewed, handoff, renewal
from runs.engine.errors import (
    BadSignal,
    ChildFailure,
    ContentRefused,
    Failure,
    ModelFailure,
    Rejected,
    TimedOut,
    ToolFailure,
)
from runs.engine.outcomes import Broken, Crashed, Exceeded, Parked, Stopped, Unwind
from runs.engine.runtime import is_being_cancelled
from runs.engine.visit import Visit


@dataclass(frozen=True, slots=True)
class Advanced:
    """The node has finished and returned the name of the next node. `state` is plain data."""

    node: str
    state: Any


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is done. `output` is plain data."""

    output: Any


Outcome = Advanced | Finished | Renewed | HandedOver | Parked | Exceeded | Stopped | Broken | Crashed


async def run_visit(visit: Visit, node: Node, state: BaseModel) -> Outcome:
    """Run a node until it ends, waits or stops."""
    returned: Any = None
    crash: Crashed | None = None
    context = Context(visit)
    changes = visit.changes = visit.changes_of(state)
    try:
        returned = await node.function(state, context)
        changes.take_over()
    except Unwind:
        pass  # `visit.how_it_ended()` returns the reason
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
            raise
        crash = _crash(error)
    finally:
        visit.is_over = True
        forgotten = context.forgotten()
    # The visit was stopped even if the node swallowed an Unwind and then returned or raised something else.
    return (
        visit.how_it_ended()
        or crash
        or visit.left_out()
        or _not_awaited(node, forgotten)
        or _in_itself(visit, _where_to(visit.agent, node, state, returned))
    )


def _in_itself(visit: Visit, outcome: Outcome) -> Outcome:
    """Stop a fork that would continue as another run, because that run would not inherit the fork's fence."""
    if visit.fork is None or not isinstance(outcome, (Renewed, HandedOver)):
        return outcome
    problem = "it is a fork, and would go on as another run, of whose calls nobody would be asked"
    return Broken("fork_goes_on", {"node": visit.node, "problem": problem})


def _not_awaited(node: Node, forgotten: list[str]) -> Crashed | None:
    """Fail a node that didn't await all its calls. Otherwise the run would complete without doing its work."""
    if not forgotten:
        return None
    calls = ", ".join(f"ctx.{name}(…)" for name in forgotten[:5])
    return Crashed(
        "not_awaited",
        f"node {node.name!r} made {calls} without `await`, so nothing was done: write `await {calls.split(', ')[0]}`",
        "",
    )


def _crash(error: BaseException) -> Crashed:
    story = "".join(traceback.format_exception(error))
    match error:
        case Failure():
            return Crashed(printable(error.code), error.message, "")
        case Rejected():
            return Crashed("rejected", str(error), "")
        case ToolFailure():
            return Crashed(error.code, str(error), story)
        case ModelFailure():
            return Crashed(error.code, str(error), story)
        case ContentRefused():
            return Crashed(CONTENT_REFUSED, str(error), "")
        case ChildFailure():
            return Crashed(error.code or "child_failed", str(error), story)
        case TimedOut():
            return Crashed("timed_out", str(error), story)
        case BadSignal():
            return Crashed("bad_signal", str(error), story)
        case _:
            return Crashed("node_error", f"{type(error).__name__}: {error}", story)


def _where_to(agent: Agent, node: Node, state: BaseModel, returned: Any) -> Outcome:
    match returned:
        case End():
            return _finish(agent, returned.output)
        case Renew():
            return renewal(agent, node, returned)
        case Handoff():
            return handoff(agent, node, returned)
        case Node():
            target = returned.name
        case str():
            target = returned
        case _:
            return Crashed(
                "bad_return",
                f"node {node.name!r} returned {type(returned).__name__}: return a node's name, End(output), "
                "Renew(state) or Handoff(agent, input)",
                "",
            )
    if target not in node.edges:
        return Crashed(
            "bad_edge",
            f"node {node.name!r} went to {target!r}, but declares only {', '.join(node.edges) or 'an end'}",
            "",
        )
    try:
        left, _ = as_recorded(state, agent.state)  # the traceback of an error raised here leads to the node's code
        return Advanced(target, left)
    except ValueError as error:
        return Crashed("bad_state", f"the state after {node.name!r} is not plain data: {error}", "")


def _finish(agent: Agent, output: Any) -> Outcome:
    try:
        if agent.output is not None:
            output = output if isinstance(output, agent.output) else agent.output.model_validate(output)
            return Finished(as_recorded(output, agent.output)[0])
        return Finished(plain(output))
    except ValueError as error:
        return Crashed(
            "bad_output", f"the output does not fit {agent.output.__name__ if agent.output else 'JSON'}: {error}", ""
        )
