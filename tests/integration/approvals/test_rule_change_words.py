"""What the second of two people reads of a change is in words: whoever agrees to it does not count minutes."""

from __future__ import annotations

from typing import Any

import pytest

from approvals.policies.words import was_and_is
from tests.cases import each_case
from tests.integration.approvals.test_rule_changes import anna, bert, guarded

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert", "guarded"]  # fixtures


@each_case(
    ("name", "before", "after"),
    [("within_seconds", 60, 61), ("proof", {"within": 60}, {"within": 61}), ("steps", [["a", 0]], [["a", 0.5]])],
)
def test_what_differs_never_reads_the_same(name: str, before: Any, after: Any) -> None:
    was, now = was_and_is(name, before, after)
    assert was != now
