"""Send the calls of a probe, two with one key and one body, and compare them. The caller has recorded the intent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from runs.engine.canonical import digest_of, plain, printable
from runs.engine.errors import BusinessFailure, KeyRejected, NotSent, TransportError, describe_error
from runs.engine.tools import FOR_DISPATCH, DidNotHappen, Happened, Pending, Tool, ToolCall

Outcome = Literal["answered", "refused", "key rejected", "no answer", "not sent", "broke"]
Verdict = Literal["honours_keys", "ignores_keys", "refuses_repeats", "hook_denies", "unclear"]

MAX_TRIES, PAUSE_SECONDS = 4, 1.0


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call, with its text.

    `effect` is the name of the object that the call created or found, if the answer contains it.
    """

    outcome: Outcome
    text: str = ""
    effect: Any = None
    answer: Any = None

    @property
    def is_answered(self) -> bool:
        return self.outcome == "answered"


@dataclass(slots=True)
class Observation:
    """The result of a probe.

    The keys of `calls` are first, repeat, control and conflict. `hook` is the reconcile hook's answer.
    """

    calls: dict[str, CallResult] = field(default_factory=dict)
    hook: str = ""
    verdict: Verdict = "unclear"
    finding: str = ""

    def evidence(self, keys: dict[str, str]) -> dict[str, Any]:
        """Return the evidence for the record, with digests in place of answers."""
        calls = {
            name: {
                "key": keys[name],
                "what": call.outcome,
                "said": call.text[:500],
                "effect": None if call.effect is None else _short(call.effect),
                "digest": None if call.answer is None else digest_of(call.answer),
            }
            for name, call in self.calls.items()
        }
        return {"calls": calls, "hook": self.hook}


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """The calls to send.

    The same body is sent twice with the first key. Two calls are optional: the same body with another key (control),
    and another body with the first key (conflict).
    """

    tool: Tool
    args: BaseModel
    calls: dict[str, ToolCall]
    conflict: BaseModel | None = None
    has_control: bool = False


async def observe(plan: ProbePlan, pause: float = PAUSE_SECONDS) -> Observation:
    """Make the calls. If the first call fails, nothing more is sent, because a failure shows nothing about keys."""
    observation = Observation()
    observation.calls["first"] = first = await _call(plan, "first", plan.args)
    if not first.is_answered:
        observation.finding = f"the first call failed ({first.outcome}: {first.text}): it shows nothing about keys"
        return observation
    observation.calls["repeat"] = await _call_until_clear(plan, "repeat", plan.args, pause)
    if plan.has_control:
        observation.calls["control"] = await _call_until_clear(plan, "control", plan.args, pause)
    if plan.conflict is not None:
        observation.calls["conflict"] = await _call_until_clear(plan, "conflict", plan.conflict, pause)
    if plan.tool.reconcile is not None:
        observation.hook = await _ask_hook(plan, first)
    observation.verdict, observation.finding = _judge(plan, observation)
    return observation


async def _call_until_clear(plan: ProbePlan, name: str, args: BaseModel, pause: float) -> CallResult:
    """Call until the result is clear, and return it. The upstream system may still be busy with the previous call."""
    for _ in range(MAX_TRIES):
        result = await _call(plan, name, args)
        if result.outcome not in ("no answer", "not sent"):
            break
        await asyncio.sleep(pause)
    return result


async def _call(plan: ProbePlan, name: str, args: BaseModel) -> CallResult:
    tool, call = plan.tool, plan.calls[name]
    function = tool.opened(FOR_DISPATCH)
    try:
        async with asyncio.timeout(tool.timeout):
            answer = await (function(args, call) if tool.is_async else _in_thread(lambda: function(args, call)))
        if isinstance(answer, (BusinessFailure, KeyRejected)):
            raise answer
        return _answered(tool, answer)
    except BusinessFailure as error:
        return CallResult("refused", printable(error.message))
    except KeyRejected as error:
        return CallResult("key rejected", printable(error.message))
    except NotSent as error:
        return CallResult("not sent", printable(error.message))
    except (TransportError, TimeoutError) as error:
        return CallResult("no answer", describe_error(error))
    except (Exception, SystemExit) as error:
        return CallResult("broke", describe_error(error))


def _answered(tool: Tool, answer: Any) -> CallResult:
    if tool.answers_later:
        if not isinstance(answer, Pending):
            return CallResult(
                "broke", f"the tool answers later, so it must return Pending, not {type(answer).__name__}"
            )
        receipt = plain(answer.receipt)
        return CallResult("answered", effect=receipt, answer=receipt)
    result = tool.checked(answer).result
    return CallResult("answered", effect=tool.external_id_of(result) or result, answer=result)


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Run a blocking function in a daemon thread.

    It can't be interrupted, and must not keep the process alive.
    """
    result: Future[Any] = Future()

    def perform() -> None:
        result.set_running_or_notify_cancel()  # a timeout of the waiting caller doesn't cancel the future
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=perform, daemon=True).start()
    return await asyncio.wrap_future(result)


async def _ask_hook(plan: ProbePlan, first: CallResult) -> str:
    """Ask the reconcile hook for the effect of the first call, and return its answer as text."""
    tool = plan.tool
    assert tool.reconcile is not None
    try:
        answer = await asyncio.wait_for(tool.reconcile(plan.args, plan.calls["first"]), tool.timeout)
        if isinstance(answer, Happened):
            found = tool.checked(answer.output).result
            is_it = tool.answers_later or (tool.external_id_of(found) or found) == first.effect
            return "finds it" if is_it else "finds another effect"
        return "denies it" if isinstance(answer, DidNotHappen) else "gives no answer"
    except Exception as error:
        return f"gave no answer: {describe_error(error, 200)}"


# --- the verdict ------------------------------------------------------------------------------------------------------


def _judge(plan: ProbePlan, observation: Observation) -> tuple[Verdict, str]:
    first, repeat = observation.calls["first"], observation.calls["repeat"]
    if repeat.outcome in ("refused", "key rejected"):
        return "refuses_repeats", (
            f"the same call under the same key was {repeat.outcome} ({repeat.text}): a repeat would look like a refusal"
        )
    if not repeat.is_answered:
        return "unclear", f"the same call under the same key failed ({repeat.outcome}: {repeat.text})"
    if first.effect != repeat.effect:
        return "ignores_keys", (
            f"two calls under one key had two effects: {_short(first.effect)} and {_short(repeat.effect)}"
        )
    conflict = observation.calls.get("conflict")
    if conflict is not None and conflict.is_answered and conflict.effect != first.effect:
        return "ignores_keys", (
            f"another body under the same key had another effect: {_short(first.effect)} and {_short(conflict.effect)}"
        )
    if not _can_tell_apart(plan, observation):
        return "unclear", (
            "both answers are the same, but nothing in them names the effect, so this proves nothing."
            " Declare external_id=, or add --control, which has one more effect"
        )
    if observation.hook in ("denies it", "finds another effect"):
        return (
            "hook_denies",
            f"keys are honoured, but the reconcile hook {observation.hook}: which would be needed after a crash",
        )
    return "honours_keys", f"two calls under one key had one effect: {_short(first.effect)}" + _conflict_finding(
        conflict
    )


def _can_tell_apart(plan: ProbePlan, observation: Observation) -> bool:
    """Return whether two effects could be told apart.

    They can if the upstream system assigns the name, or if the call with another key got a different answer.
    """
    first, control = observation.calls["first"], observation.calls.get("control")
    if control is not None and control.is_answered:
        return bool(control.effect != first.effect)
    tool = plan.tool
    if tool.external_id is None or tool.answers_later or tool.external_id_of(first.answer) is None:
        return False
    return str(first.effect) not in _scalars(plain(plan.args))


def _scalars(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set().union(*map(_scalars, value.values()))
    if isinstance(value, list):
        return set().union(*map(_scalars, value))
    return {str(value)}


def _conflict_finding(conflict: CallResult | None) -> str:
    if conflict is None:
        return ""
    if conflict.outcome == "key rejected":
        return "; another body under that key is rejected"
    if conflict.is_answered:
        return "; another body under that key is answered like the first"
    if conflict.outcome == "refused":
        return f"; another body under that key is refused like a business failure ({conflict.text}): raise KeyRejected"
    return f"; another body under that key failed ({conflict.outcome})"


def _short(effect: Any) -> str:
    """Return the name of an effect; if it has none, a digest of the answer, which may be secret."""
    text = effect if isinstance(effect, str) else digest_of(effect)[:19]
    return text if len(text) <= 80 else f"{text[:77]}…"
