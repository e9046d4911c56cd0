"""What every landed commit's code put on record is replayed by today's: each visit finds its calls again and comes to
the same state. Kept in `tests/fixtures/journals` (see `keep.py`), each folder by its commit; none ever changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from durableagents.testing import CheckpointDiffers, replay_checkpoint, replay_checkpoints
from durableagents.testing.replays import checkpoint_files
from runs.engine.agents import registry
from runs.engine.migration.formats import FILES, STATES
from tests.conftest import CHECKOUT
from tests.upgrade import (
    agents,
    agents_decided,
    agents_granted,
    agents_later,
    agents_overseen,
    agents_released,
    agents_steered,
    agents_talked,
)
from tests.upgrade.places import DUMPS

KEPT = CHECKOUT / "tests" / "fixtures" / "journals"
EVERY = (
    agents.agent, *agents_later.AGENTS, *agents_released.AGENTS, *agents_decided.AGENTS, *agents_overseen.AGENTS,
    *agents_talked.AGENTS, *agents_granted.AGENTS, *agents_steered.AGENTS,
)  # fmt: skip
# Whose runs were asked about before they did anything.
ASKING = ("-decided-", "-overseen-", "-halted-", "-talked-", "-granted-", "-steered-")
# All that a folder holds, so that a journal that was changed to fit today's code is noticed.
DIGESTS = {
    "35b5861": "b4bc6b5b4ef649f0",
    "46b5c85": "940fedfde5fa1696",
    "8bc9f88": "42c6a104ec23d929",
    "b957ed2": "1db128163b3b0c9b",
    "eb7ed38": "a0c2ea0cfb5a37cb",
    "64c249e": "4053968b496c6b86",
    "ad14af3": "aa6d6d367c02846b",
    "c0be986": "7fe01f802d05c8bb",
    "fea9c54": "39a6649dc54524a9",
}


def digest_of(folder: Path) -> str:
    held = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        held.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return held.hexdigest()[:16]


def test_every_landed_format_has_its_journals_and_they_are_as_they_were_kept() -> None:
    assert {dump.name.split(".")[0] for dump in DUMPS} <= {folder.name for folder in KEPT.iterdir()}
    assert {folder.name: digest_of(folder) for folder in KEPT.iterdir()} == DIGESTS


@pytest.fixture
def entered() -> Iterator[None]:
    """Some of these agents hand on to others, found by name; a story beside this one may have taken those out."""
    missing = [each for each in EVERY if each not in registry.agents()]
    for each in missing:
        registry.add(each)
    yield
    for each in missing:
        registry.remove(each.graph_id)


@pytest.mark.usefixtures("entered")
@pytest.mark.parametrize("commit", DIGESTS)
def test_what_older_code_put_on_record_is_replayed_by_todays(commit: str) -> None:
    effects = len(agents.OUTSIDE.effects)
    done = replay_checkpoints(KEPT / commit, EVERY)
    # Those have nothing to be answered with.
    waiting = [each for each in done if any(name in each.file for name in ASKING) and not each.answered]
    assert len(done) > 50 and sum(each.answered for each in done) > 1.5 * (len(done) - len(waiting))
    assert len(agents.OUTSIDE.effects) == effects


@pytest.mark.usefixtures("entered")
def test_what_was_undone_then_is_undone_by_todays_code_the_same_way() -> None:
    """The visit that undoes is made by the engine's code, not by an agent's."""
    undoing = [file for file in checkpoint_files(KEPT / "eb7ed38") if "-_undo-" in file.name]
    assert len(undoing) > 5 and sum(replay_checkpoint(file, EVERY).answered for file in undoing) >= 3


@pytest.mark.usefixtures("entered")
def test_an_undo_that_says_otherwise_is_told_from_them(tmp_path: Path) -> None:
    undoing = [file for file in checkpoint_files(KEPT / "eb7ed38") if "-_undo-" in file.name]
    kept = next(file for file in undoing if "EffectUndone" in file.read_text())
    found = json.loads(kept.read_text())
    (back,) = (each for each in found["checkpoint"]["state"]["effects"] if each["tool"] == "book")
    back["arguments"]["name"] = "another one"
    changed = tmp_path / kept.name
    changed.write_text(json.dumps(found))
    with pytest.raises(CheckpointDiffers, match=r'name is "first .*" on record, and "another one" in what the code'):
        replay_checkpoint(changed, EVERY)


def test_a_record_that_says_otherwise_is_told_from_them(tmp_path: Path) -> None:
    """Or the replays above would prove nothing."""
    kept = next(file for file in checkpoint_files(KEPT / "8bc9f88") if "-upgraded-1.0.0-begin" in file.name)
    changed = tmp_path / kept.name
    changed.write_text(kept.read_text().replace('"catalogue"', '"catalog"'))
    with pytest.raises(CheckpointDiffers, match='name is "catalog" on record, and "catalogue" in what the code gives'):
        replay_checkpoint(changed, EVERY)


def test_a_format_that_this_version_writes_is_one_that_it_keeps_reading() -> None:
    """Whoever writes another one adds a step from the last, and journals of it here."""
    assert (FILES.oldest, FILES.now, STATES.oldest, STATES.now) == (1, 1, 1, 1)
