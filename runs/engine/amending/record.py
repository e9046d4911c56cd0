"""A person's changes to the arguments of a call that waits for a yes: what may be changed, what becomes of the plan by
it, and what the agent is told. Pure.

What goes out is what the newest question names: a yes binds those bytes and no others. `requested_hash` stays that of
what the node asked for, so a replay knows the call again.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger import events as e
from runs.engine.canonical import plain, printable
from runs.engine.gate.editable import editable_in
from runs.engine.gate.requirement import is_staged, required_by
from runs.engine.tape import Slot, payload_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from runs.engine.tools import Gate, Tool

NO_CODE = "it was changed where this agent's code is not installed"


@dataclass(frozen=True, slots=True)
class Amendment:
    """That a person changed a call before they let it go out. `by` is who, `why` their reason; `changes` has for each
    field that differs what the node (or the model) had asked for, and what went out: `{"amount": (5000, 4000)}`."""

    by: str
    why: str
    changes: dict[str, tuple[Any, Any]]


def amended_plan(plan: dict[str, Any], arguments: dict[str, Any], tool: Tool | None) -> dict[str, Any]:
    """The plan with these arguments, and with what the tool's gate says of them. Where the tool isn't at hand, nobody
    can tell their amount, and nothing is said of what decides. Raises ValueError (a ValidationError) for arguments that
    are no input of the tool."""
    plan = _from_the_first_stage(plan) | {"arguments": arguments, "headline": ""}
    if tool is None:
        return plan | ({"amount": {"problem": NO_CODE}} if "amount" in plan else {})
    args, gate = tool.input.model_validate(arguments), tool.gate
    if gate is None or gate.requirement != required_by(plan, plan["queue"]):
        return plan | ({"amount": {"problem": "its gate asks other people now"}} if "amount" in plan else {})
    rule = {"rule": printable(gate.rule_for(args))} if gate.is_needed(args) else {}
    return plan | rule | {"headline": printable(gate.headline_for(args))} | gate.amount_for(args)


def _from_the_first_stage(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan as it is put to all of them anew: nobody has said yes to what it became. What a yes has to show is kept,
    but for the words to be typed, which are those of the old arguments."""
    kept = {name: value for name, value in plan.items() if name not in ("passed", "proof")}
    shown = plan.get("proof")
    if isinstance(shown, dict) and (shown := {name: value for name, value in shown.items() if name != "typed"}):
        kept |= {"proof": shown}
    return kept | ({"stage": 1, "queue": required_by(plan, "").stages[0].queue} if is_staged(plan) else {})


def changes(before: Any, after: Any) -> dict[str, dict[str, Any]]:
    """What differs between two sets of arguments, by field."""
    names = [*before, *(name for name in after if name not in before)]
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if name not in before or name not in after or _differ(before[name], after[name])
    }


def _differ(one: Any, other: Any) -> bool:
    """By value, as they are on record: 1 and true are two things, 1 and 1.0 one number."""
    return json.dumps(_by_value(one), sort_keys=True) != json.dumps(_by_value(other), sort_keys=True)


def _by_value(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _by_value(each) for name, each in value.items()}
        case list():
            return list(map(_by_value, value))
        case _:
            return value


def moved_along(tool: Tool, before: Any, made: BaseModel, fields: Collection[str]) -> list[str]:
    """What the tool's own code makes another value of than it makes of what was asked (`before`), although nobody may
    change it: `fields` are those that people may. `made` is its input of the changed arguments."""
    try:
        was = plain(tool.input.model_validate(before))
    except ValueError:  # of another version of the code
        was = before
    return sorted(name for name in changes(was, plain(made)) if name not in fields)


def arguments_of(record: Slot) -> Any:
    """What people put in the place of a call's arguments, while the newest question is about that; else None."""
    if not record.amended:
        return None
    given = payload_of(record.amended[-1][0]).get("arguments")
    return given if record.gate is not None and payload_of(record.gate).get("arguments") == given else None


def editable_of(record: Slot) -> set[str]:
    """What people could change of a call: the fields that the questions named of which they changed something."""
    asked = (record.asked.get(event.approval_id) for event, _ in record.amended)
    return {name for question in asked for name in editable_in(payload_of(question))["properties"]}


def asked_for(record: Slot) -> Any:
    """What the node asked for, where the journal holds it: of a call that people changed, as it was put to them
    first."""
    first = next(iter(record.asked.values()), None)
    return payload_of(first).get("arguments") if record.amended and first is not None else record.arguments


def looks_before(record: Slot) -> int:
    """How many looks of hooks were at other arguments than those in force."""
    return record.amended[-1][1] if record.amended and arguments_of(record) is not None else 0


def amendment_of(record: Slot | None) -> Amendment | None:
    """What a call that went out owes to people: all that they changed since the node asked."""
    if record is None or not record.was_invoked or arguments_of(record) is None:
        return None
    merged: dict[str, tuple[Any, Any]] = {}
    for event, _ in record.amended:
        for name, change in payload_of(event).get("changes", {}).items():
            first = merged[name][0] if name in merged else change.get("from")
            merged[name] = (first, change.get("to"))
    last = record.amended[-1][0]
    merged = {name: (was, became) for name, (was, became) in merged.items() if _differ(was, became)}
    return Amendment(last.by, str(payload_of(last).get("justification", "")), merged)


def in_words(event: e.PlanAmended) -> str:
    """One amendment, for whoever decides later."""
    said = ", ".join(
        f"{name} from {json.dumps(change.get('from'), ensure_ascii=False)} to "
        f"{json.dumps(change.get('to'), ensure_ascii=False)}"
        for name, change in payload_of(event).get("changes", {}).items()
    )
    return f"Amended by {event.by} (approval {event.approval_id}): {said}."


def became(record: Slot, gate: Gate | None, args: Any) -> str:
    """Why a yes to amended arguments isn't enough: the gate, asked by the code that sends them, says something else of
    them than their question did. Empty where it is."""
    question = record.gate
    if gate is None or question is None or not gate.is_needed(args):
        return ""
    said = payload_of(question)
    if gate.requirement != required_by(said, question.queue):
        return ""
    if printable(gate.rule_for(args)) != said.get("rule"):
        return "the rule that asks for it is another one than its question said"
    if gate.amount_for(args) != {name: said[name] for name in ("amount",) if name in said}:
        return "the amount that it is about was another one in its question"
    return ""
