"""A database of the first release is migrated and its runs are continued by today's code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ledger import schema
from ledger.verification.registers import verify_registers
from ledger.verification.runs import verify_all
from runs.engine.agents import registry
from runs.models import Run
from tests.integration.runs.stage import Stage, facts
from tests.shape import left_behind, shape
from tests.system.databases import database, django_on, migrate
from tests.system.upgrade import DUMP, agents

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Create no test database: each test has its own."""


@pytest.fixture
def urls(postgres: Mapping[str, str], django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, str]]:
    """The dumped installation after `migrate`, with the tests' master key and its agent."""
    registry.add(agents.agent)
    with django_db_blocker.unblock(), database(postgres, DUMP) as found:
        migrate(found["owner"])
        yield found
    registry.remove(agents.agent.graph_id)


def shape_of(url: str) -> dict[str, str]:
    with django_on(url, "owner"):
        assert schema.misfit() is None
        return shape()


def test_restored_database_becomes_what_a_new_one_is(postgres: Mapping[str, str], urls: dict[str, str]) -> None:
    with database(postgres) as new:
        migrate(new["owner"])
        assert left_behind(shape_of(new["owner"]), shape_of(urls["owner"])) == []


def test_restored_runs_come_to_their_ends_with_every_effect_once(urls: dict[str, str]) -> None:
    agents.EFFECTS.clear()
    with django_on(urls["runtime"]):
        ended = set(Run.objects.exclude(state="waiting_human").values_list("state", flat=True))
        (gate,) = Run.objects.filter(waits__kind="approval")
        (unknown,) = Run.objects.filter(waits__kind="reconcile")
        stage = Stage()
        try:
            assert [problem for each in verify_all() for problem in each.problems] == []
            assert ended == {"completed", "failed"}
            stage.decide(gate)
            stage.reconcile(unknown, "happened", {"ref": "mail:by hand"})
            assert {stage.drive(), stage.drive()} == {"completed"} and stage.drive() == "idle"
        finally:
            stage.close()
        assert agents.EFFECTS == [("pay", "paid")]
        assert facts(gate).count("committed") == 2
        assert [problem for each in verify_all() for problem in each.problems] == []
        assert all(not each.problems for each in verify_registers())
