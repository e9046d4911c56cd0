"""The facts that policies are evaluated on, the verdict, and the check of the policies' revision. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

from ledger import events as e
from runs.engine.errors import PoliciesChanged
from runs.engine.gating.proof import NO_PROOF, Proof

Effect = Literal["allow", "require", "deny"]
# The strictest effect first: of several matching policies, the strictest wins.
STRICTEST: tuple[Effect, ...] = ("deny", "require", "allow")


@dataclass(frozen=True, slots=True)
class Asking:
    """A call to be evaluated; None stands for unknown facts.

    `requester` started the run (`run:…` is resolved to the topmost starter if a policy needs that). `tags` are loaded
    if a policy needs them. `cost_micro` is the amount spent so far, in millionths of a dollar.
    """

    run_id: str
    agent: str
    version: str
    tool: str
    replay_class: str
    risk: str
    arguments: Any
    source: str
    requester: str | None
    cost_micro: int | None
    tags: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """An approval that a policy requires. The requirement is part of the plan, so that the decision covers it."""

    queue: str
    rule: str
    within: timedelta
    policy: str
    version: int
    proof: Proof = NO_PROOF  # required in addition to the queue's own requirement

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the plan."""
        return {"name": self.policy, "version": self.version}


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict of the strictest matching policy, according to the policies at `revision`.

    `problem` is set if the policies in force are unknown.
    """

    effect: Effect
    revision: int
    policy: str = ""
    version: int = 0
    rule: str = ""
    requirements: tuple[Demand, ...] = ()
    problem: str = ""


class Policies(Protocol):
    """The policies in force. `version` changes whenever the result of `may_apply` may change."""

    @property
    def version(self) -> int: ...

    def may_apply(self) -> bool:
        """Return whether calls must be evaluated. Return False if a recent read found no policies."""
        ...

    async def judge(self, asking: Asking, *, fresh: bool = False) -> Judged | None:
        """Evaluate the cached policies (with `fresh`, the current ones) for a call.

        Return None if there are no policies.
        """
        ...


class NoPolicies:
    """The default: there are no policies."""

    version = 0

    def may_apply(self) -> bool:
        return False

    async def judge(self, asking: Asking, *, fresh: bool = False) -> Judged | None:
        return None


def hold_to(revision: int, live: int, judged: int | None) -> None:
    """Raise PoliciesChanged unless the call was evaluated at `revision`.

    A call that was not evaluated (`judged` is None) is valid while no policies are `live`.
    """
    if judged != revision and not (judged is None and live == 0):
        raise PoliciesChanged(f"evaluated with the policies of revision {judged}, but revision {revision} is in force")


def check(revision: int, live: int, events: Sequence[e.Event]) -> None:
    """Raise PoliciesChanged if the call that these events announce was evaluated with outdated policies."""
    if not any(isinstance(event, (e.ToolInvoked, e.ToolRedispatched)) for event in events):
        return
    hold_to(revision, live, next((event.revision for event in events if isinstance(event, e.PolicyApplied)), None))
