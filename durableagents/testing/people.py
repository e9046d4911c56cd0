"""What people's words are checked for, as the services do it."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from durableagents.testing.family import Member
from durableagents.testing.problems import StoryProblem
from ledger import events as e
from runs.engine.memory import MemoryWait
from runs.engine.tape import payload_of


def misfit_of(schema: dict[str, Any], given: Any) -> str:
    """What is wrong with an answer; empty where nothing is."""
    errors = sorted(Draft202012Validator(schema).iter_errors(given), key=lambda error: list(map(str, error.path)))
    return "; ".join(f"{'.'.join(map(str, error.path)) or 'value'}: {error.message}" for error in errors[:3])


def settled(member: Member, wait: MemoryWait, verdict: str, *, result: Any, receipt: Any, by: str) -> e.ToolReconciled:
    """A person's word on a call of unknown outcome. Raises StoryProblem where *it happened* comes without what is
    needed to go on."""
    s = wait.spec
    intent = next(x for x in member.run.events if isinstance(x, e.ToolInvoked) and x.slot == s.slot)
    tool = member.agent.tool(intent.tool)
    payload: dict[str, Any] = {"receipt": receipt}
    if verdict == "happened" and tool is not None:
        try:
            if result is not None:
                payload["result"] = tool.checked(result).result
            else:
                args = tool.input.model_validate(payload_of(intent)["arguments"])
                payload["result"] = tool.checked(tool.output_from_receipt(args, receipt)).result
        except Exception as error:
            raise StoryProblem(f"{tool.name} happened, but what is told gives no result: {error}") from None
    return e.ToolReconciled(
        slot=s.slot, attempt=s.attempt, tool=intent.tool, verdict=verdict, by=by, n=s.n, payload=payload
    )
