"""Certificates of keyed tools: whether the upstream was seen to honour idempotency keys."""

from __future__ import annotations

from collections.abc import Callable
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
class ProbeVerdict:
    """Verdict of a tool's newest probe. `found` is what it saw, even if expired or outdated; `until` its expiry."""

    word: Word
    found: Word = "not_probed"
    until: datetime | None = None

    @property
    def is_certified(self) -> bool:
        return self.word == "certified"

    @property
    def is_unsafe(self) -> bool:
        """Return whether the last probe saw repeats go unrecognized; only another probe revokes that."""
        return self.found in _UNSAFE

    @property
    def is_denier(self) -> bool:
        """Return whether the last probe saw the hook miss an effect, so that its "did not happen" proves nothing."""
        return self.found == "hook_denies"


NOT_PROBED = ProbeVerdict("not_probed")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A keyed tool's standing, with the finding of its newest probe, who made it and when."""

    standing: ProbeVerdict
    told: str = ""
    by: str = ""
    at: datetime | None = None


CertificateReader = Callable[[str, Tool], Certificate | None]


class Certificates:
    """Certificates of a worker's tools, and the policy for uncertified ones. This class has none."""

    def __init__(self, policy: Policy = "allow") -> None:
        self.policy = policy

    async def standing(self, agent: str, tool: Tool, *, is_fresh: bool = False) -> ProbeVerdict:
        """Return the standing of an agent's tool (agent name without version); `is_fresh` bypasses caches."""
        return NOT_PROBED
