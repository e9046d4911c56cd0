"""An agent whose every word is an attack on the page that shows it: input, model, tool, evidence, error."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from durableagents import (
    Agent,
    Assistant,
    BusinessFailure,
    Context,
    End,
    Evidence,
    Gate,
    ReplayClass,
    Sample,
    ToolCall,
    ToolFailure,
    tool,
)

ATTACK = (
    "</textarea></pre></script><script>window.pwned=1</script><img src=//attack.invalid/x onerror=window.pwned=2>"
    "<svg onload=window.pwned=3><style>*{display:none}</style><form action=//attack.invalid><button>Approve</button></form>"
    "{{ 7|add:7 }}{% now 'Y' %} javascript:window.pwned=4 \u202eevorppa\u202c \u200b N\u043erdlicht \U000e0041 "
)


class Said(BaseModel):
    text: str = ATTACK
    fails: bool = False


class State(BaseModel):
    said: Said


@tool(
    replay_class=ReplayClass.IDEMPOTENT_WITH_KEY, title="Do it", system="nowhere", effect=f"Does it. {ATTACK}", external_id="text",
    gate=Gate("finance_po", f"Always. {ATTACK}", headline=lambda args: args.text),
)  # fmt: skip
async def do_it(args: Said, call: ToolCall) -> Said:
    """Does it."""
    return Said(text=ATTACK)


@tool(replay_class=ReplayClass.PURE, title="Read it")
async def read_it(args: Said, call: ToolCall) -> Said:
    """Refuses with the attack."""
    raise BusinessFailure(ATTACK, code="attack", details={ATTACK: ATTACK})


async def _say(messages: list[Any], info: Any) -> ModelResponse:
    return ModelResponse(parts=[TextPart(ATTACK), ToolCallPart("final_result", {"text": ATTACK})])


voice = Assistant(name="voice", instructions=ATTACK, output=Said, offline=_say)
hostile = Agent(
    "zz-hostile", "1.0.0", input=Said, state=State, output=Said, initial=lambda said: State(said=said), title=f"Hostile {ATTACK}",
    description=ATTACK, samples=[Sample(label=ATTACK, input={"text": ATTACK})], tools=[do_it, read_it], assistants=[voice],
)  # fmt: skip


@hostile.node(start=True, title=ATTACK)
async def speak(state: State, ctx: Context) -> End:
    await ctx.think(voice, ATTACK)
    try:
        await ctx.call(read_it, Said())
    except ToolFailure:
        pass
    if state.said.fails:
        raise RuntimeError(ATTACK)
    return End(await ctx.call(do_it, Said(), evidence=[Evidence(ATTACK, ATTACK, {ATTACK: [ATTACK]})], why=ATTACK))


hostile.validate()
