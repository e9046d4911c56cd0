"""The engine's own LLM loop: model → tools → model …, every turn and every tool call a step.

Messages are Pydantic AI's types, so any of its providers serves; a recorded turn is never asked again. A turn's request
adds only what no other event holds (the prompt, or a correction): tool results are read back from their own events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from runs.engine.amending.record import amendment_of
from runs.engine.assistants import Assistant
from runs.engine.canonical import plain
from runs.engine.errors import ContentRefused, ModelFailure, PolicyDenied, Rejected, ToolFailure
from runs.engine.steps.branches import fork
from runs.engine.steps.call import call_tool
from runs.engine.succession.declared import Said, as_data
from runs.engine.thinking.compaction import Conversation
from runs.engine.thinking.sizes import shown
from runs.engine.tools import FINAL
from runs.engine.visit import Visit


async def think(visit: Visit, slot: str, assistant: Assistant, prompt: str, after: Sequence[Said] = ()) -> BaseModel:
    """Run the loop until the model gives a valid final result; `after` is what was said before it, by others. Raises
    ModelFailure, Rejected (a gate in the loop was denied)."""
    talk = Conversation(visit, visit.open_path(slot, "think"), assistant, prompt, as_data(after) if after else "")
    visit.talks.append(talk)
    repairs = 0
    for _ in range(assistant.max_turns):
        await talk.keep_short()
        question = talk.question()
        if repairs > assistant.max_repairs and not question.is_on_record:
            problem = f"{assistant.name} gave nothing valid {repairs} times in a row"
            raise ModelFailure("no_valid_answer", problem)
        response = await question.answer()
        talk.hear(response)
        restored = _on_record(visit, talk.path_of_turn, response)
        result, parts, is_valid = await _act(visit, talk.path_of_turn, assistant, response)
        if result is not None:
            return result
        talk.say(parts, restored)
        repairs = 0 if is_valid else repairs + 1
    raise ModelFailure("too_many_turns", f"{assistant.name} gave no final result in {assistant.max_turns} turns")


def _on_record(visit: Visit, path: str, response: Any) -> list[bool]:
    """Of each call of a turn, whether the journal had its answer before it was asked for."""
    known = visit.tape.slots
    slots = [visit.places.at(f"{path}/{n}") for n, _ in enumerate(response.tool_calls, start=1)]
    return [slot in known and known[slot].now.outcome is not None for slot in slots]


async def _act(
    visit: Visit, path: str, assistant: Assistant, response: Any
) -> tuple[BaseModel | None, list[Any], bool]:
    """Make the calls that a turn asks for. A valid final result ends the loop, after the calls before it; what can't be
    done goes back as text, in the order of the request. Last: whether any of it could be done."""
    from pydantic_ai.messages import RetryFeedbackPart, RetryInfo, ToolCallPart, ToolReturnPart

    calls: list[ToolCallPart] = []
    result = None
    for part in (p for p in response.parts if isinstance(p, ToolCallPart)):
        result = _final(assistant, part)
        if result is not None:
            break
        calls.append(part)
    answers = await _make(visit, path, assistant, calls)
    if result is not None:
        return result, [], True
    parts: list[Any] = [
        ToolReturnPart(part.tool_name, shown(content, assistant.window), part.tool_call_id, outcome=outcome)  # type: ignore[arg-type]
        for part, (content, outcome) in zip(calls, answers, strict=True)
    ]
    is_valid = any(outcome != "retried" for _, outcome in answers)
    return None, parts or [RetryFeedbackPart(f"End by calling {FINAL}.", retry=RetryInfo("no_output"))], is_valid


def _final(assistant: Assistant, part: Any) -> BaseModel | None:
    """The loop's result, if this is the call that gives one and what it gives fits."""
    given = _read(assistant.output, part) if part.tool_name == FINAL else None
    return given if isinstance(given, BaseModel) else None


async def _make(visit: Visit, path: str, assistant: Assistant, calls: Sequence[Any]) -> list[tuple[Any, str]]:
    """All calls of a turn at once, or one after the other where one of their tools says so."""
    used = [assistant.tool(part.tool_name) for part in calls]
    works = [(f"{path}/{i}", part) for i, part in enumerate(calls, start=1)]
    if len(works) < 2 or any(tool is not None and tool.sequential for tool in used):
        return [await _use(visit, visit.places.at(place), assistant, part) for place, part in works]
    branches = await fork(
        visit, [(f"{place}/", _use(visit, visit.places.at(place), assistant, part)) for place, part in works]
    )
    for branch in branches:
        if branch.error is not None:
            raise branch.error
    return [branch.result for branch in branches]


async def _use(visit: Visit, slot: str, assistant: Assistant, part: Any) -> tuple[Any, str]:
    """One tool call of a turn: what goes back to the model, and how that is to be read."""
    if part.tool_name == FINAL:
        return _read(assistant.output, part), "retried"  # in words: one that fits has ended the loop
    tool = assistant.tool(part.tool_name)
    if tool is None:
        return (
            f"There is no tool {part.tool_name!r}. Tools: {', '.join(t.name for t in assistant.tools) or 'none'}.",
            "retried",
        )
    args = _read(tool.input, part)
    if isinstance(args, str):
        return args, "retried"
    try:
        answer = plain(await call_tool(visit, slot, tool, args, source="model", name=assistant.name))
        changed = _amended(visit, slot)
        return ({"result": answer, **changed} if changed else answer), "success"
    except PolicyDenied as no:
        return {"denied_by": no.policy, "reason": no.message, **_amended(visit, slot)}, "denied"
    except ToolFailure as failure:
        return {"failed": failure.code, "message": failure.message, **_amended(visit, slot)}, "failed"
    except ContentRefused as kept:
        return {"withheld_by": kept.hook, "reason": kept.reason}, "denied"
    except Rejected as denied:
        return {"rejected_by": denied.queue, "reason": denied.reason}, "denied"


def _amended(visit: Visit, slot: str) -> dict[str, Any]:
    """What the model is told of a call that a person changed before they let it go out: it must not go on as if its own
    words had been sent."""
    found = amendment_of(visit.tape.slots.get(slot))
    if found is None:
        return {}
    changes = {name: {"asked": asked, "sent": sent} for name, (asked, sent) in found.changes.items()}
    return {"amended_by_a_person": {"changes": changes, "reason": found.why}}


def _arguments(part: Any) -> Any:
    """A tool call's arguments as data; what isn't JSON is passed on as it is, to fail validation by name."""
    if not isinstance(part.args, str):
        return part.args or {}
    try:
        return json.loads(part.args)
    except ValueError:
        return part.args


def _read(wanted: type[BaseModel], part: Any) -> BaseModel | str:
    """A tool call's arguments, or what is wrong with them, in words a model can act on."""
    try:
        return wanted.model_validate(_arguments(part))
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, p['loc'])) or 'value'}: {p['msg']}" for p in error.errors())[:2000]
