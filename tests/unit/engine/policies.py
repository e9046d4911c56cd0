"""Policies in memory, and a worker with outdated knowledge of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from durableagents.contrib.policies.conditions import restore_condition
from durableagents.contrib.policies.judging import Rule, Rulebook
from runs.engine.policy import Asking, Judged
from tests.unit.engine.story import Story


def rule(effect: Any = "require", condition: str = "", kinds: dict[str, str] | None = None, **more: Any) -> Rule:
    """Return a policy's version, of queue `finance_po` where it requires an approval."""
    given = {
        "name": f"{effect}_it",
        "version": 1,
        "agent": "",
        "tool": "",
        "effect": effect,
        "queue": "finance_po" if effect == "require" else "",
        "within": timedelta(days=1),
        "rule": "the board says so",
    }
    return Rule(condition=restore_condition(condition, kinds or {}), **(given | more))


class Known:
    def __init__(self, story: Story) -> None:
        self.story, self.asked = story, 0
        self.book = self.known = Rulebook(0)
        story.policies = self

    def put(self, *rules: Rule, problem: str = "", is_known: bool = True) -> None:
        """Put these in force; the worker may not know it yet."""
        self.book = Rulebook(self.book.revision + 1, rules, problem)
        self.story.run.policies = (self.book.revision, len(rules))
        if is_known:
            self.known = self.book

    @property
    def version(self) -> int:
        return self.known.revision

    def may_apply(self) -> bool:
        return not self.known.is_empty

    async def judge(self, asking: Asking, *, fresh: bool = False) -> Judged | None:
        if fresh:
            self.asked += 1
            self.known = self.book
        return self.known.judge(asking)


def with_policies(story: Story, rules: Sequence[Rule]) -> Known:
    known = Known(story)
    if rules:
        known.put(*rules)
    return known
