"""A small installation whose runs were sealed, with a witness on another volume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from durableagents.contrib.seals import sealing
from durableagents.seal_witness import SealWitness, read_witness
from ledger import events as e
from ledger.append import append
from ledger.chain import genesis
from ledger.models import Head
from tests.integration.runs.conftest import _agents_of_this_test, outside, stage, tools
from tests.world import SHOP

__all__ = ["_agents_of_this_test", "outside", "stage", "tools"]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, settings: Any) -> Path:
    """A data folder of the test's own, for the private key. No witness is configured."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"data": folder, "seal_witnesses": []})
    return folder


@pytest.fixture
def new_run() -> Callable[..., UUID]:
    """Write the journal of a run with some events."""

    def write(events: int = 3, run_id: UUID | None = None) -> UUID:
        run_id = run_id or uuid4()
        Head.objects.create(run_id=run_id, chain=genesis(run_id))
        append(run_id, e.RunCreated(agent="a", version="1.0.0", by=SHOP.ref, payload={"text": "go"}), by=SHOP)
        for n in range(1, events):
            go_on(run_id, n)
        return run_id

    return write


def go_on(run_id: UUID, n: int = 1) -> None:
    append(run_id, e.VisitEntered(node=f"node {n}", visit=n), by=SHOP)


def seal() -> int:
    """Seal all that moved; return the number of seals."""
    return sealing.seal_all()


@pytest.fixture
def witness(tmp_path: Path, settings: Any) -> SealWitness:
    """A witness that is a file, configured."""
    found = read_witness(f"file://{tmp_path}/seals.jsonl")
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"seal_witnesses": [found]})
    return found
