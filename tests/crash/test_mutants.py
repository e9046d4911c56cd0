"""The seeded bugs can still be put in. That each is caught is shown by `python -m tests.crash.mutants`, which takes
minutes."""

from __future__ import annotations

import ast

import pytest

from ledger.sqlfiles import functions
from tests.conftest import CHECKOUT
from tests.crash.mutant import LIGHT, Mutant
from tests.crash.mutants import spoilt
from tests.crash.mutations import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_seeded_bug_applies_and_is_a_program(mutant: Mutant) -> None:
    text = spoilt((CHECKOUT / mutant.path).read_text(), mutant)
    if mutant.path.endswith(".py"):
        ast.parse(text)
    for path in [] if mutant.check == LIGHT else mutant.check.partition(" -k ")[0].split():
        assert (CHECKOUT / path).is_file(), path


def _newest() -> dict[str, str]:
    """The file that says last what each SQL function is."""
    files = sorted(CHECKOUT.glob("*/sql/*.sql"), key=lambda path: path.name if path.name[:4].isdigit() else "")
    return {name: str(path.relative_to(CHECKOUT)) for path in files for name in functions(path.read_text())}


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.is_sql], ids=lambda mutant: mutant.name)
def test_a_bug_in_sql_is_in_what_the_database_executes(mutant: Mutant) -> None:
    """Not in a function that a later file declares anew: nobody could notice it."""
    sound = (CHECKOUT / mutant.path).read_text()
    before, after = functions(sound), functions(spoilt(sound, mutant))
    (changed,) = (name for name in before if before[name] != after[name])
    assert _newest()[changed] == mutant.path


def test_there_are_many_and_each_is_another() -> None:
    assert len(MUTANTS) >= 22
    assert len({(mutant.path, mutant.before, mutant.after) for mutant in MUTANTS}) == len(MUTANTS)
