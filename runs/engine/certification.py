"""Certificates of keyed tools: whether the upstream was seen to honour idempotency keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from runs.engine.tools import Tool

Policy = Literal["allow", "warn", "refuse"]
Word = Literal[
    "certified", "not_probed", "expired", "changed", "unclear", "ignores_keys", "refuses_repeats", "hook_denies"
]
# Seen to treat a repeat as a second order, or to refuse it: such calls aren't repeated without asking, keyed or not.
_UNSAFE: frozenset[Word] = frozenset({"ignores_keys", "refuses_repeats"})


@dataclass(frozen=True, slots=True)
class Standing:
    """Current verdict of a tool's newest probe. `found` is what it saw, even if that has expired or the tool changed
    since; `until` is when it expires."""

    word: Word
    found: Word = "not_probed"
    until: datetime | None = None

    @property
    def is_certified(self) -> bool:
        return self.word == "certified"

    @property
    def is_unsafe(self) -> bool:
        """Return whether the last probe saw that repeats aren't recognized. This outlasts the certificate and
        changes of the tool: only another probe revokes it."""
        return self.found in _UNSAFE

    @property
    def is_denier(self) -> bool:
        """Return whether the last probe saw that the hook misses effects, so its "did not happen" proves nothing.
        This outlasts time and changes too."""
        return self.found == "hook_denies"


NOT_PROBED = Standing("not_probed")


class Certificates:
    """Default: nothing was probed and no certificate is required. A worker's are in runs/certification/known.py."""

    policy: Policy = "allow"

    async def standing(self, agent: str, tool: Tool, *, is_fresh: bool = False) -> Standing:
        """Return the standing of an agent's tool (agent name without version); `is_fresh` bypasses caches."""
        return NOT_PROBED
