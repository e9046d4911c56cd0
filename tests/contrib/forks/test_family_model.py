from __future__ import annotations

from hypothesis.stateful import run_state_machine_as_test

from tests.contrib.forks.family_model import Family
from tests.integration.runs.stage import Stage
from tests.tiers import of_a_machine
from tests.world import Outside


def test_a_family_ends_as_the_model_says_whatever_is_done_to_it(stage: Stage, outside: Outside) -> None:
    run_state_machine_as_test(lambda: Family(stage, outside), settings=of_a_machine(40, 3, steps=25))
