"""Every mutation of the heart's list applies to the code as it is, and its tests exist."""

from __future__ import annotations

import ast

from ledger.definitions import definitions
from tests.mutants.__main__ import _tree, files
from tests.mutants.heart import HEART, MODULES
from tests.mutants.operators import DoesNotApply, Operator, sites


def test_every_mutation_applies_and_names_existing_tests() -> None:
    problems = []
    sql = {each.name: each.text for each in definitions().values() if each.kind == "FUNCTION"}
    for name, (mutation, tests) in HEART.items():
        files(tests)
        try:
            if isinstance(mutation, Operator):
                compile(mutation.mutate(_tree(mutation.module)), "mutated", "exec")
            else:
                assert mutation.mutate(sql[mutation.function]) != sql[mutation.function]
        except (DoesNotApply, KeyError) as error:
            problems.append(f"{name}: {error!r}")
    assert problems == []


def test_every_place_of_the_modules_can_be_mutated() -> None:
    for module, tests in MODULES.items():
        files(tests)
        found = sites(module, _tree(module))
        assert found, module
        before = ast.dump(_tree(module))
        assert all(ast.dump(site.mutate(_tree(module))) != before for site in found[:: max(1, len(found) // 5)])
