"""What a policy is asked about a call and what it answers, and the check of the revision a call was judged by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

from ledger import events as e
from runs.engine.errors import PoliciesChanged
from runs.engine.gate.proof import NO_PROOF, Proof

Effect = Literal["allow", "require", "deny"]
# The strictest first: of several policies that match, it is the one that counts.
STRICTEST: tuple[Effect, ...] = ("deny", "require", "allow")


@dataclass(frozen=True, slots=True)
class Asking:
    """A call that is about to be made. `arguments` is plain data, `source` who wants it (*node*, or *model*; empty:
    nobody knows), `requester` who started the run, `cost_micro` what the run has spent so far in millionths of a dollar
    (None: nobody knows). `tags` are the run's; None: not read, which is done only where a policy asks for them. So is
    whoever started the first of the runs above one that another run made, `run:…`; None: that can't be told."""

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
    """Whose yes a policy demands before the call may leave: part of the plan that people decide, so that their yes
    binds it."""

    queue: str
    rule: str
    within: timedelta
    policy: str
    version: int
    proof: Proof = NO_PROOF  # what such a yes has to show, besides what the queue asks

    def as_json(self) -> dict[str, Any]:
        """Plain data, as it enters the plan."""
        return {"name": self.policy, "version": self.version}


@dataclass(frozen=True, slots=True)
class Judged:
    """What the policies in force at `revision` say of a call. `policy` and `version` name the strictest that matches,
    empty where none does; `rule` is its words. `problem`: they are not what this installation has put on record, so
    that nobody can tell what is in force."""

    effect: Effect
    revision: int
    policy: str = ""
    version: int = 0
    rule: str = ""
    requirements: tuple[Demand, ...] = ()
    problem: str = ""


class Policies(Protocol):
    """The policies in force."""

    async def judge(self, asking: Asking, *, anew: bool = False) -> Judged | None:
        """What they say of a call, as they were known a moment ago, or `anew`, as they are now. None: there are
        none."""
        ...


class NoPolicies:
    """Nobody keeps any."""

    async def judge(self, asking: Asking, *, anew: bool = False) -> Judged | None:
        return None


def hold_to(revision: int, live: int, judged: int | None) -> None:
    """Raises PoliciesChanged for a call that was judged by other policies than the `live` ones of now, those of
    `revision`. None: it was judged by none, for there were none."""
    if judged != revision and not (judged is None and live == 0):
        raise PoliciesChanged(f"judged by the policies of revision {judged}, in force are those of {revision}")


def check(revision: int, live: int, events: Sequence[e.Event]) -> None:
    """Raises PoliciesChanged for a call's intent that was judged by other policies than the `live` ones of now."""
    if not any(isinstance(event, (e.ToolInvoked, e.ToolRedispatched)) for event in events):
        return
    hold_to(revision, live, next((event.revision for event in events if isinstance(event, e.PolicyApplied)), None))
