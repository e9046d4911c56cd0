"""The seeded bugs can still be put in. That each is caught is shown by `python -m tests.crash.mutants`, which takes minutes."""

from __future__ import annotations

import ast

import pytest

from tests.conftest import CHECKOUT
from tests.crash.mutants import spoilt
from tests.crash.mutations import LIGHT, MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_seeded_bug_applies_and_is_a_program(mutant: Mutant) -> None:
    text = spoilt((CHECKOUT / mutant.path).read_text(), mutant)
    if mutant.path.endswith(".py"):
        ast.parse(text)
    for path in [] if mutant.check == LIGHT else mutant.check.partition(" -k ")[0].split():
        assert (CHECKOUT / path).is_file(), path


def test_there_are_many_and_each_is_another() -> None:
    assert len(MUTANTS) >= 22
    assert len({(mutant.path, mutant.before, mutant.after) for mutant in MUTANTS}) == len(MUTANTS)
