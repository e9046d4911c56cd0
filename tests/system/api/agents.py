"""An agent that waits for a signal."""

from __future__ import annotations

from pydantic import BaseModel

from durableagents import Agent, Context, End


class Word(BaseModel):
    word: str


agent = Agent("listener", "1.0.0", input=Word, state=Word, output=Word)


@agent.node(start=True, title="Listen")
async def listen(state: Word, ctx: Context) -> End:
    """Wait for a signal and repeat it."""
    return End(Word.model_validate(await ctx.signal("word")))
