"""Certificates of keyed tools.

A certificate tells whether the upstream system was observed to honour idempotency keys.
"""

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
# The upstream system was observed to treat a repeat as a second order, or to refuse it. Calls of such tools aren't
# repeated without asking, even keyed ones.
_UNSAFE: frozenset[Word] = frozenset({"ignores_keys", "refuses_repeats"})


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """The verdict on a tool according to its newest probe.

    `found` is the finding of that probe, even if it has expired or the tool has changed since; `until` is its expiry.
    """

    word: Word
    found: Word = "not_probed"
    until: datetime | None = None

    @property
    def is_certified(self) -> bool:
        return self.word == "certified"

    @property
    def is_unsafe(self) -> bool:
        """Return whether the last probe found that the upstream system doesn't recognize repeats.

        Only another probe can revoke that finding.
        """
        return self.found in _UNSAFE

    @property
    def is_denier(self) -> bool:
        """Return whether the last probe found that the hook missed an effect.

        If so, its "did not happen" proves nothing.
        """
        return self.found == "hook_denies"


NOT_PROBED = ProbeVerdict("not_probed")


@dataclass(frozen=True, slots=True)
class Certificate:
    """The verdict on a keyed tool, with details of its newest probe: the finding, its author and its time."""

    standing: ProbeVerdict
    told: str = ""
    by: str = ""
    at: datetime | None = None


CertificateReader = Callable[[str, Tool], Certificate | None]


class Certificates:
    """The certificates of a worker's tools, and the policy for uncertified tools.

    The base class has no certificates.
    """

    def __init__(self, policy: Policy = "allow") -> None:
        self.policy = policy

    async def standing(self, agent: str, tool: Tool, *, is_fresh: bool = False) -> ProbeVerdict:
        """Return the verdict on a tool of an agent (its name without version). `is_fresh` bypasses caches."""
        return NOT_PROBED
