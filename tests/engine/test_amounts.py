"""Amounts add up field by field, whatever fields there are."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from runs.engine.budget.amounts import NOTHING_USED, RESOURCES, Usage

AMOUNTS = st.builds(Usage, **{field.name: st.integers(0, 10**15) for field in fields(Usage)})


@given(AMOUNTS, AMOUNTS)
def test_each_field_is_added_and_taken_away_by_itself(one: Usage, other: Usage) -> None:
    both = one + other
    for name in RESOURCES:
        assert getattr(both, name) == getattr(one, name) + getattr(other, name)
    assert both - other == one and both - one == other and one + NOTHING_USED == one == one - NOTHING_USED
