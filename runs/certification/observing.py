"""The calls of a probe, and what they say of the other side: two under one key with one body, compared.

Pure but for the tool's own function. Whoever calls this has the intent on record.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from ledger.redacted import masked_key
from runs import failpoints
from runs.engine.agents import registry
from runs.engine.canonical import digest_of, plain, printable
from runs.engine.errors import BusinessFailure, KeyRejected, NotSent, TransportError, brief
from runs.engine.tools import FOR_DISPATCH, DidNotHappen, Happened, Pending, Tool, ToolCall


def install(path: Path) -> None:
    """Note the calls of every tool that this process has, from now on. A version's fingerprint stays what it is."""
    for agent in registry.agents():
        for tool in agent.all_tools():
            function = tool.opened(FOR_DISPATCH)
            if not tool.is_pure and not hasattr(function, "notes_calls"):
                noted = _awaited(function, path) if tool.is_async else _plain(function, path)
                noted.author = getattr(function, "author", function)  # type: ignore[attr-defined]
                noted.notes_calls = True  # type: ignore[attr-defined]
                object.__setattr__(tool, "_function", noted)


def _awaited(function: Callable[..., Any], path: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    async def noted(args: BaseModel, call: ToolCall) -> Any:
        _note(path, "left", args, call)
        try:
            answer = await function(args, call)
        except Exception as error:
            _note(path, "raised", args, call, error=brief(error))
            raise
        return _over(path, args, call, answer)

    return noted


def _plain(function: Callable[..., Any], path: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(args: BaseModel, call: ToolCall) -> Any:
        _note(path, "left", args, call)
        try:
            answer = function(args, call)
        except Exception as error:
            _note(path, "raised", args, call, error=brief(error))
            raise
        return _over(path, args, call, answer)

    return noted


def _over(path: Path, args: BaseModel, call: ToolCall, answer: Any) -> Any:
    result = answer.model_dump(mode="json") if isinstance(answer, BaseModel) else None
    _note(path, "done", args, call, result=result)
    failpoints.hit("CP3", call.tool, call.run_id)
    return answer


def _note(path: Path, what: str, args: BaseModel, call: ToolCall, **more: Any) -> None:
    line = {
        "what": what,
        "tool": call.tool,
        "key": masked_key(call.key),
        "run": call.run_id,
        "slot": call.slot,
        "attempt": call.attempt,
        "body": digest_of(plain(args)),
        "pid": os.getpid(),
    } | more
    text = json.dumps(printable(line), default=str) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text(errors="replace").split("\n")
    return [json.loads(line) for line in lines[:-1] if line.endswith("}")]


def is_noted(tool: Tool) -> bool:
    return hasattr(tool.opened(FOR_DISPATCH), "notes_calls")


What = Literal["answered", "refused", "key rejected", "no answer", "not sent", "broke"]
Verdict = Literal["honours_keys", "ignores_keys", "refuses_repeats", "hook_denies", "unclear"]

AGAIN, PAUSE_SECONDS = 4, 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Result of one call. `effect` names what it created or found, as far as its answer shows."""

    what: What
    said: str = ""
    effect: Any = None
    answer: Any = None

    @property
    def is_answered(self) -> bool:
        return self.what == "answered"


@dataclass(slots=True)
class Observation:
    """Result of a probe. `calls` are named first, repeat, control, conflict; `hook` is the answer of the reconcile
    hook."""

    calls: dict[str, Seen] = field(default_factory=dict)
    hook: str = ""
    verdict: Verdict = "unclear"
    told: str = ""

    def evidence(self, keys: dict[str, str]) -> dict[str, Any]:
        """Return the evidence as recorded, with digests in place of answers."""
        calls = {
            name: {
                "key": keys[name],
                "what": seen.what,
                "said": seen.said[:500],
                "effect": None if seen.effect is None else _short(seen.effect),
                "digest": None if seen.answer is None else digest_of(seen.answer),
            }
            for name, seen in self.calls.items()
        }
        return {"calls": calls, "hook": self.hook}


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls to send: the same body twice under the first key; optionally once more under another key, and
    another body under the first."""

    tool: Tool
    args: BaseModel
    calls: dict[str, ToolCall]
    conflict: BaseModel | None = None
    has_control: bool = False


async def observe(plan: Plan, pause: float = PAUSE_SECONDS) -> Observation:
    """Make the calls. After a first one that isn't answered nothing more is sent: nothing is known of keys then."""
    seen = Observation()
    seen.calls["first"] = first = await _call(plan, "first", plan.args)
    if not first.is_answered:
        seen.told = f"the first call came to nothing ({first.what}: {first.said}): it says nothing about keys"
        return seen
    seen.calls["repeat"] = await _until_told(plan, "repeat", plan.args, pause)
    if plan.has_control:
        seen.calls["control"] = await _until_told(plan, "control", plan.args, pause)
    if plan.conflict is not None:
        seen.calls["conflict"] = await _until_told(plan, "conflict", plan.conflict, pause)
    if plan.tool.reconcile is not None:
        seen.hook = await _ask_hook(plan, first)
    seen.verdict, seen.told = _judge(plan, seen)
    return seen


async def _until_told(plan: Plan, name: str, args: BaseModel, pause: float) -> Seen:
    """The first answer that settles anything: the other side may be busy with the call before."""
    for _ in range(AGAIN):
        seen = await _call(plan, name, args)
        if seen.what not in ("no answer", "not sent"):
            break
        await asyncio.sleep(pause)
    return seen


async def _call(plan: Plan, name: str, args: BaseModel) -> Seen:
    tool, call = plan.tool, plan.calls[name]
    function = tool.opened(FOR_DISPATCH)
    try:
        async with asyncio.timeout(tool.timeout):
            answer = await (function(args, call) if tool.is_async else _in_thread(lambda: function(args, call)))
        if isinstance(answer, (BusinessFailure, KeyRejected)):
            raise answer
        return _answered(tool, answer)
    except BusinessFailure as no:
        return Seen("refused", printable(no.message))
    except KeyRejected as no:
        return Seen("key rejected", printable(no.message))
    except NotSent as error:
        return Seen("not sent", printable(error.message))
    except (TransportError, TimeoutError) as error:
        return Seen("no answer", brief(error))
    except (Exception, SystemExit) as error:
        return Seen("broke", brief(error))


def _answered(tool: Tool, answer: Any) -> Seen:
    if tool.answers_later:
        if not isinstance(answer, Pending):
            return Seen("broke", f"it answers later, so it has to return Pending, not {type(answer).__name__}")
        receipt = plain(answer.receipt)
        return Seen("answered", effect=receipt, answer=receipt)
    result = tool.checked(answer).result
    return Seen("answered", effect=tool.external_id_of(result) or result, answer=result)


async def _in_thread(work: Callable[[], Any]) -> Any:
    """A blocking function in a thread of its own, which keeps nobody from ending: it can't be cut short."""
    told: Future[Any] = Future()

    def perform() -> None:
        told.set_running_or_notify_cancel()  # from here on nobody's giving up cancels it
        try:
            told.set_result(work())
        except BaseException as error:
            told.set_exception(error)

    threading.Thread(target=perform, daemon=True).start()
    return await asyncio.wrap_future(told)


async def _ask_hook(plan: Plan, first: Seen) -> str:
    """Return whether the hook finds the effect of the first call."""
    tool = plan.tool
    assert tool.reconcile is not None
    try:
        said = await asyncio.wait_for(tool.reconcile(plan.args, plan.calls["first"]), tool.timeout)
        if isinstance(said, Happened):
            found = tool.checked(said.output).result
            is_it = tool.answers_later or (tool.external_id_of(found) or found) == first.effect
            return "finds it" if is_it else "finds another effect"
        return "denies it" if isinstance(said, DidNotHappen) else "gives no answer"
    except Exception as error:
        return f"gives no answer: {brief(error, 200)}"


# --- what it says -----------------------------------------------------------------------------------------------------


def _judge(plan: Plan, seen: Observation) -> tuple[Verdict, str]:
    first, repeat = seen.calls["first"], seen.calls["repeat"]
    if repeat.what in ("refused", "key rejected"):
        return "refuses_repeats", (
            f"the same call under the same key was {repeat.what} ({repeat.said}): a repeat would be taken for a refusal"
        )
    if not repeat.is_answered:
        return "unclear", f"the same call under the same key came to nothing ({repeat.what}: {repeat.said})"
    if first.effect != repeat.effect:
        return "ignores_keys", (
            f"two calls under one key were two effects: {_short(first.effect)} and {_short(repeat.effect)}"
        )
    conflict = seen.calls.get("conflict")
    if conflict is not None and conflict.is_answered and conflict.effect != first.effect:
        return "ignores_keys", (
            f"another body under the same key was another effect: {_short(first.effect)} and {_short(conflict.effect)}"
        )
    if not _is_telling(plan, seen):
        return "unclear", (
            "both answers are the same, which proves nothing: nothing in them names the effect."
            " Declare external_id=, or send --control, which is one effect more"
        )
    if seen.hook in ("denies it", "finds another effect"):
        return "hook_denies", f"keys are honoured, but the reconcile hook {seen.hook}: a crash would go by that"
    return "honours_keys", f"two calls under one key were one effect: {_short(first.effect)}" + _conflict_words(
        conflict
    )


def _is_telling(plan: Plan, seen: Observation) -> bool:
    """Return whether two effects could be told apart: by a name that only the upstream system gave, or because a
    call under another key got another answer."""
    first, control = seen.calls["first"], seen.calls.get("control")
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


def _conflict_words(conflict: Seen | None) -> str:
    if conflict is None:
        return ""
    if conflict.what == "key rejected":
        return "; another body under that key is rejected"
    if conflict.is_answered:
        return "; another body under that key is answered as the first was"
    if conflict.what == "refused":
        return f"; another body under that key is refused as if it were business ({conflict.said}): raise KeyRejected"
    return f"; another body under that key came to nothing ({conflict.what})"


def _short(effect: Any) -> str:
    """The name of an effect; of an answer that gives it none, its digest: what it says may be secret."""
    text = effect if isinstance(effect, str) else digest_of(effect)[:19]
    return text if len(text) <= 80 else f"{text[:77]}…"
