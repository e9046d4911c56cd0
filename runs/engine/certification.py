"""Whether the other side of a keyed tool was seen to honour keys: what a call goes by before its intent, and before a
repeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from runs.engine.tools import Tool

Policy = Literal["allow", "warn", "refuse"]
Word = Literal[
    "certified", "not_probed", "expired", "changed", "unclear", "ignores_keys", "refuses_repeats", "hook_denies"
]
# Seen to take a repeat for a second order, or to refuse it: such a call isn't repeated unasked, keyed or not.
_UNSAFE: frozenset[Word] = frozenset({"ignores_keys", "refuses_repeats"})


@dataclass(frozen=True, slots=True)
class Standing:
    """What the newest probe of a tool says of it today. `found`: what it saw, also where that has expired or the tool
    was changed since; `until`: for how long that counts."""

    word: Word
    found: Word = "not_probed"
    until: datetime | None = None

    @property
    def is_certified(self) -> bool:
        return self.word == "certified"

    @property
    def is_unsafe(self) -> bool:
        """Whether the last thing that was seen is that a repeat is none. That outlasts the certificate's time, and a
        change of the tool: only another probe takes it back."""
        return self.found in _UNSAFE

    @property
    def is_denier(self) -> bool:
        """Whether the last thing that was seen is that the hook doesn't find what was done: that it says *it did not
        happen* tells nothing. That outlasts time and change too."""
        return self.found == "hook_denies"


NOT_PROBED = Standing("not_probed")


class Certificates:
    """Nobody has probed anything, and nobody asks for it. A worker's are in runs/certification/known.py."""

    policy: Policy = "allow"

    async def standing(self, agent: str, tool: Tool, *, is_fresh: bool = False) -> Standing:
        """What is known of a tool of this agent (its name, without version); `is_fresh`: as of this moment."""
        return NOT_PROBED
