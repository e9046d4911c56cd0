"""What somebody sends to make, change or retire a policy, and how much of it is taken: API bodies and forms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from approvals.queues.bodies import Name
from ledger.web.bodies import NoFlag, Strict
from runs.engine.gate.proof import Proof
from runs.queries.attributes.grammar import LONGEST
from runs.services.bodies import SteerBody

EVERY_CALL = "every call"  # what is typed for a rule that stops each
LONGEST_WAIT = 24 * 365
MOST_CALLS = 10_000  # that a policy is tried on
Text = Annotated[str, Field(max_length=LONGEST)]


class Rule(Strict):
    """What a policy says. `agent` and `tool`: empty is any. `condition` is an expression over the call; empty is
    none. `effect` is what becomes of a call that matches: let pass, put to the `queue` for a yes (people have
    `within_hours`), or refused. `rule` says why, to people and to the agent. A yes may have to show more than being
    said: that its person showed who they are within `proof_minutes` (0: not asked), by a `second_factor`; and the
    amount or the target, typed. `confirm` is `every call` for one that
    stops each call of all agents."""

    agent: Name = ""
    tool: Name = ""
    condition: Text = ""
    effect: Literal["allow", "require", "deny"]
    queue: Name = ""
    within_hours: Annotated[int, Field(strict=False, ge=1, le=LONGEST_WAIT), NoFlag] = 168
    rule: Text
    proof_minutes: Annotated[int, Field(strict=False, ge=0, le=24 * 60), NoFlag] = 0
    second_factor: bool = False
    type_amount: bool = False
    type_target: bool = False
    confirm: Name = ""

    @property
    def proof(self) -> Proof:
        """What such a yes has to show."""
        return Proof(self.proof_minutes * 60, self.second_factor, self.type_amount, self.type_target)


class TryBody(Rule):
    """A policy that is only tried, in the place of the one in force that `name` names, if it does, on the newest
    `calls` on record. The rest is taken as a form sends it, and makes no difference."""

    name: Name = ""
    rule: Text = "as tried"
    calls: Annotated[int, Field(strict=False, ge=1, le=MOST_CALLS), NoFlag] = 1000
    seen: int | str | None = None
    justification: str = ""


class NewPolicyBody(Rule, SteerBody):
    """A policy under a new name."""

    name: Name


class PolicyBody(Rule, SteerBody):
    """A policy's new version. `seen` is the version that it was made from: refused where there is a newer one by
    now."""

    seen: Annotated[int, Field(strict=False, ge=1), NoFlag] | None = None
