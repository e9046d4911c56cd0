"""The engine's loop of model and tools, on Pydantic AI's messages. Every turn and every tool call is a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from ledger.kinds import NO_VALID_ANSWER, TOO_MANY_TURNS
from runs.engine.amending import amendment_of
from runs.engine.assistants import Assistant
from runs.engine.call import call_tool
from runs.engine.canonical import canonical, plain
from runs.engine.content.files import Prompt, with_files
from runs.engine.continuation import Said, as_data
from runs.engine.errors import ContentRefused, PolicyDenied, Rejected, ToolFailure
from runs.engine.logical_call import CallSpec
from runs.engine.steps.branches import fork
from runs.engine.thinking.compaction import Conversation
from runs.engine.thinking.sizes import fit_answer
from runs.engine.tools import FINAL
from runs.engine.visit import Visit


async def think(visit: Visit, slot: str, assistant: Assistant, prompt: Prompt, after: Sequence[Said] = ()) -> BaseModel:
    """Run the loop until the model gives a valid final result, and return it.

    `after` is an earlier conversation. Raises ModelFailure, Rejected.
    """
    talk = Conversation(visit, visit.open_path(slot, "think"), assistant, prompt, as_data(after) if after else "")
    visit.talks.append(talk)
    turns = repairs = 0
    while True:
        await talk.keep_short()
        question = talk.question()
        if question.attempt:  # a person retried the run after the loop had given up here
            turns = repairs = 0
        if not question.is_on_record and repairs > assistant.max_repairs:
            await question.give_up(NO_VALID_ANSWER, f"{assistant.name} gave nothing valid {repairs} times in a row")
        if not question.is_on_record and turns >= assistant.max_turns:
            problem = f"{assistant.name} gave no final result in {assistant.max_turns} turns"
            await question.give_up(TOO_MANY_TURNS, problem)
        response = await question.answer()
        talk.hear(response)
        restored = _on_record(visit, talk.path_of_turn, response)
        result, parts, is_valid = await _act(visit, talk.path_of_turn, assistant, response)
        if result is not None:
            return result
        talk.say(parts, restored)
        turns, repairs = turns + 1, 0 if is_valid else repairs + 1


def _on_record(visit: Visit, path: str, response: Any) -> list[bool]:
    """Return, for each call of a turn, whether its answer was already recorded."""
    known = visit.tape.slots
    slots = [visit.places.at(f"{path}/{n}") for n, _ in enumerate(response.tool_calls, start=1)]
    return [slot in known and known[slot].now.outcome is not None for slot in slots]


async def _act(
    visit: Visit, path: str, assistant: Assistant, response: Any
) -> tuple[BaseModel | None, list[Any], bool]:
    """Make the calls of a turn.

    Returns the final result if there is one, the parts of the reply, and whether any call was valid.
    """
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
        ToolReturnPart(part.tool_name, content, part.tool_call_id, outcome=outcome)  # type: ignore[arg-type]
        for part, (content, outcome) in zip(calls, answers, strict=True)
    ]
    is_valid = any(outcome != "retried" for _, outcome in answers)
    return None, parts or [RetryFeedbackPart(f"End by calling {FINAL}.", retry=RetryInfo("no_output"))], is_valid


def _final(assistant: Assistant, part: Any) -> BaseModel | None:
    given = _read(assistant.output, part) if part.tool_name == FINAL else None
    return given if isinstance(given, BaseModel) else None


async def _make(visit: Visit, path: str, assistant: Assistant, calls: Sequence[Any]) -> list[tuple[Any, str]]:
    """Make all calls of a turn concurrently, or one by one if one of their tools is `sequential`."""
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
    if part.tool_name == FINAL:
        return _read(assistant.output, part), "retried"  # this is the error text: a valid result has ended the loop
    tool = assistant.tool(part.tool_name)
    if tool is None:
        return (
            f"There is no tool {part.tool_name!r}. Tools: {', '.join(t.name for t in assistant.tools) or 'none'}.",
            "retried",
        )
    args = _read(tool.input, part, is_call=True)
    if isinstance(args, str):
        return args, "retried"
    try:
        outcome = await call_tool(visit, slot, CallSpec(tool, args, source="model", name=assistant.name))
        answer, changed = plain(outcome), _amended(visit, slot)
        answer = fit_answer({"result": answer, **changed} if changed else answer, assistant.window)
        return with_files(outcome, answer), "success"
    except PolicyDenied as no:
        return {"denied_by": no.policy, "reason": no.message, **_amended(visit, slot)}, "denied"
    except ToolFailure as failure:
        return {"failed": failure.code, "message": failure.message, **_amended(visit, slot)}, "failed"
    except ContentRefused as kept:
        return {"withheld_by": kept.hook, "reason": kept.reason}, "denied"
    except Rejected as denied:
        return {"rejected_by": denied.queue, "reason": denied.reason}, "denied"


def _amended(visit: Visit, slot: str) -> dict[str, Any]:
    """Return a person's changes to a call, so that the model doesn't assume that its own arguments were sent."""
    found = amendment_of(visit.tape.slots.get(slot))
    if found is None:
        return {}
    changes = {name: {"asked": requested, "sent": sent} for name, (requested, sent) in found.changes.items()}
    return {"amended_by_a_person": {"changes": changes, "reason": found.why}}


def _read(wanted: type[BaseModel], part: Any, *, is_call: bool = False) -> BaseModel | str:
    """Return a call's parsed arguments, or an error text for the model.

    Arguments that can't be recorded or hashed are also errors.
    """
    try:
        given = wanted.model_validate(from_json(part.args) if isinstance(part.args, str) else part.args or {})
        recorded = plain(given)
        if is_call:
            canonical(recorded)
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, p['loc'])) or 'value'}: {p['msg']}" for p in error.errors())[:2000]
    except ValueError as error:
        return f"The arguments can't be used: {error}"[:2000] + ". Send them as an object in JSON."
    return given
