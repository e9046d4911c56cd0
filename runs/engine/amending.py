"""Changes that people make to the arguments of a call before approving it. Pure.

An approval covers exactly the arguments in the newest question.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runs.engine.canonical import plain, printable
from runs.engine.gating.fields import editable_in
from runs.engine.gating.stages import is_staged, required_by
from runs.engine.tape import Slot, payload_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from runs.engine.tools import Gate, Tool

NO_CODE = "it was changed by a process without this agent's code"


@dataclass(frozen=True, slots=True)
class Amendment:
    """A change that a person made to a call before it was sent. `by` is the person, `why` their reason. `changes`
    maps each changed field to the value that the node (or the model) requested and the value that was sent: `{"amount":
    (5000, 4000)}`."""

    by: str
    why: str
    changes: dict[str, tuple[Any, Any]]


def amended_plan(plan: dict[str, Any], arguments: dict[str, Any], tool: Tool | None) -> dict[str, Any]:
    """Return the plan with these arguments and the entries that the tool derives from them.

    `tool` is None if its code isn't available here. Raises ValueError if the arguments don't fit the tool.
    """
    plan = _from_the_first_stage(plan) | {"arguments": arguments, "headline": ""}
    if tool is None:
        return plan | ({"amount": {"problem": NO_CODE}} if "amount" in plan else {})
    args, gate = tool.input.model_validate(arguments), tool.gate
    if gate is None or gate.requirement != required_by(plan, plan["queue"]):
        return plan | ({"amount": {"problem": "its gate now asks other people"}} if "amount" in plan else {})
    rule = gate.rule_for(args)
    ruled = {} if rule is None else {"rule": printable(rule)}
    return plan | ruled | {"headline": printable(gate.headline_for(args))} | gate.amount_for(args)


def _from_the_first_stage(plan: dict[str, Any]) -> dict[str, Any]:
    """Reset a plan to its first stage.

    Required proof is kept, except the text to type, which shows the old arguments.
    """
    kept = {name: value for name, value in plan.items() if name not in ("passed", "proof")}
    proof = plan.get("proof")
    if isinstance(proof, dict) and (proof := {name: value for name, value in proof.items() if name != "typed"}):
        kept |= {"proof": proof}
    return kept | ({"stage": 1, "queue": required_by(plan, "").stages[0].queue} if is_staged(plan) else {})


def changes(before: Any, after: Any) -> dict[str, dict[str, Any]]:
    names = [*before, *(name for name in after if name not in before)]
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if name not in before or name not in after or _differ(before[name], after[name])
    }


def _differ(one: Any, other: Any) -> bool:
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
    """Return the fields that the tool's own code changed along with the arguments, other than the editable `fields`."""
    try:
        was = plain(tool.input.model_validate(before))
    except ValueError:  # the old arguments come from another version of the code
        was = before
    return sorted(name for name in changes(was, plain(made)) if name not in fields)


def arguments_of(record: Slot) -> Any:
    """Return the arguments that people set, if the newest question is about them; else None."""
    if not record.amended:
        return None
    given = payload_of(record.amended[-1][0]).get("arguments")
    return given if record.gate is not None and payload_of(record.gate).get("arguments") == given else None


def editable_of(record: Slot) -> set[str]:
    """Return the fields that people were allowed to change in the questions that they amended."""
    requests = (record.asked.get(event.approval_id) for event, _ in record.amended)
    return {name for question in requests for name in editable_in(payload_of(question))["properties"]}


def asked_for(record: Slot) -> Any:
    """Return the arguments that the node requested; for an amended call, those of its first question."""
    first = next(iter(record.asked.values()), None)
    return payload_of(first).get("arguments") if record.amended and first is not None else record.arguments


def looks_before(record: Slot) -> int:
    return record.amended[-1][1] if record.amended and arguments_of(record) is not None else 0


def amendment_of(record: Slot | None) -> Amendment | None:
    """Return all changes that people made to a call before it was sent; None if there are none."""
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


def became(record: Slot, gate: Gate | None, args: Any) -> str:
    """Return how the gate's current rule or amount differs from the amended question's; empty if it doesn't."""
    question = record.gate
    rule = None if gate is None else gate.rule_for(args)
    if gate is None or question is None or rule is None:
        return ""
    payload = payload_of(question)
    if gate.requirement != required_by(payload, question.queue):
        return ""
    if printable(rule) != payload.get("rule"):
        return "the rule that requires it differs from the one in its request"
    if gate.amount_for(args) != {name: payload[name] for name in ("amount",) if name in payload}:
        return "its amount differs from the one in its request"
    return ""
