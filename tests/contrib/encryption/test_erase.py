"""Erasing a run's content leaves nothing readable, a chain that verifies, and a record of who did it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from durableagents.contrib.encryption import erasure, master_keys
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify
from runs.management.shell import whoever
from tests.contrib.encryption.erasing import dumped, filled, found_in, read_with_all_keys
from tests.contrib.encryption.test_payloads import cold
from tests.integration.runs.stage import Stage, problems
from tests.world import Toolbox

WHY = "Request of the person concerned, ticket 4711"


@pytest.fixture(autouse=True)
def _own_keys() -> Iterator[None]:
    cold()
    yield
    master_keys.forget()
    cold()


def test_nothing_of_an_erased_run_is_readable_and_its_chain_verifies(stage: Stage, tools: Toolbox) -> None:
    run = filled(stage, tools)
    assert problems(run) == []
    assert len(found_in(dumped())) > 8
    assert len(read_with_all_keys(run)) > 10
    erasure.erase(run.pk, by=whoever(), justification=WHY)
    assert found_in(dumped()) == []
    assert read_with_all_keys(run) == []
    cold()
    assert read_with_all_keys(run) == []
    told = verify(run.pk)
    assert told.problems == [] and WHY in told.notes[0]
    assert [p for each in verify_registers() for p in each.problems] == []
