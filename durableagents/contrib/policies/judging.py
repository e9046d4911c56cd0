"""Evaluates all policies in force for a call. Pure.

The strictest match wins: deny, then require (each queue), then allow. A condition that can't be evaluated counts as a
match only for deny and require."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from durableagents.contrib.policies.conditions import Condition
from runs.engine.gating.proof import NO_PROOF, Proof
from runs.engine.policy import STRICTEST, Asking, Demand, Effect, Judged


@dataclass(frozen=True, slots=True)
class Rule:
    """One version of a policy, ready for evaluation."""

    name: str
    version: int
    agent: str
    tool: str
    condition: Condition
    effect: Effect
    queue: str
    within: timedelta
    rule: str
    proof: Proof = NO_PROOF

    def may_match(self, asking: Asking) -> bool:
        return self.agent in ("", asking.agent) and self.tool in ("", asking.tool)

    def matches(self, asking: Asking) -> bool:
        if not self.may_match(asking):
            return False
        verdict = self.condition.holds(asking)
        return self.effect != "allow" if verdict is None else verdict


@dataclass(frozen=True, slots=True)
class Rulebook:
    """The policies of a revision. If it has a `problem`, the policies are unknown."""

    revision: int
    rules: Sequence[Rule] = ()
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether there are no policies, so that calls need no judgement."""
        return not (self.rules or self.problem)

    def judge(self, asking: Asking) -> Judged | None:
        """Return the judgement of a call; None if there are no policies."""
        if self.problem:
            return Judged("deny", self.revision, problem=self.problem)
        if not self.rules:
            return None
        matching = [rule for rule in self.rules if rule.matches(asking)]
        for effect in STRICTEST:
            found = [rule for rule in matching if rule.effect == effect]
            if found:
                first = found[0]
                return Judged(effect, self.revision, first.name, first.version, first.rule, _demanded(found, effect))
        return Judged("allow", self.revision)

    def needs_tags(self, asking: Asking) -> bool:
        return any(rule.condition.needs_tags and rule.may_match(asking) for rule in self.rules)

    def needs_arguments(self, asking: Asking) -> bool:
        return any(rule.condition.needs_arguments and rule.may_match(asking) for rule in self.rules)

    def needs_requester(self, asking: Asking) -> bool:
        return any(rule.condition.needs_requester and rule.may_match(asking) for rule in self.rules)


def _demanded(found: Sequence[Rule], effect: Effect) -> tuple[Demand, ...]:
    """Return one demand per queue, taken from the first policy that requires the queue.

    The proof of a demand combines those of all policies that require the queue."""
    if effect != "require":
        return ()
    by_queue: dict[str, Demand] = {}
    for rule in found:
        first = by_queue.get(rule.queue) or Demand(rule.queue, rule.rule, rule.within, rule.name, rule.version)
        by_queue[rule.queue] = replace(first, proof=first.proof.joined(rule.proof))
    return tuple(by_queue.values())
