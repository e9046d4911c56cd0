"""Whoever moves runs of an older database to another version before they go on, and forks one: what was put on record
under an older format is done again by the new version's code, or a name says why the run stays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from ledger import events as e
from ledger.errors import InvalidInput
from ledger.verification.runs import verify
from runs.engine.recordings.replaying import replay
from runs.journal.digests import hasher
from runs.models import Checkpoint, Run
from runs.queries.recordings.reading import visit_of
from runs.services import questions
from runs.services.forks import forking
from runs.services.forks.forking import Wanted
from runs.services.migrating import acts
from runs.services.migrating.acts import Outcome
from runs.services.migrating.bodies import LookBody, MigrateBody
from tests.runs.stage import Stage, dump, events, output, waiting
from tests.upgrade import agents
from tests.upgrade.agents_moved import NODES, twin
from tests.upgrade.people import Old
from tests.upgrade.people_released import Released
from tests.world import OLGA

WHY = "the test says so"
# Why a run stays on its version; the others can all be moved.
STAYS = {
    **dict.fromkeys(("cancelled", "completed", "failed", "refused"), "ended"),
    **dict.fromkeys(("freed", "outage", "unknown"), "in_doubt"),
    **dict.fromkeys(
        ("held after", "held and asked to cancel", "held and asked to pause", "held before", "held unsafe"), "driven"
    ),
    "doomed unknown": "cancelled", "operator": "stopped",
}  # fmt: skip
# Those that nobody moves, so that both versions are at work.
LEFT = ("decided", "paused pending", "sleep")
UNBEGUN = ("pending", "pending with a signal")
TAKE = {"decision": "take_what_is_on_record"}


def are_replayed(runs: Sequence[Old]) -> None:
    """From every checkpoint, by the version that they were of then: without a difference."""
    for old in runs:
        for seq in Checkpoint.objects.filter(run_id=old.id).order_by("seq").values_list("seq", flat=True):
            found = asyncio.run(replay(visit_of(old.id, seq), agents.agent, hasher=hasher()))
            assert found.difference is None, (old.name, seq, found.difference)


def move(runs: Sequence[Old]) -> list[Old]:
    """Every run is asked for but those that are left; those that were moved."""
    asked = [old for old in runs if old.name not in LEFT]
    body = {
        "from_version": agents.agent.version, "to_version": twin.version, "nodes": NODES,
        "runs": [old.id for old in asked],
    }  # fmt: skip
    before = dump()
    looked = acts.preview(twin.name, LookBody.model_validate(body))
    assert dump() == before, "a look changes nothing"
    did = acts.migrate(twin.name, MigrateBody.model_validate(body | {"justification": WHY}), by=OLGA)
    for old, seen, found in zip(asked, looked, did, strict=True):
        assert (seen.how, seen.code) == (found.how, found.code), old.name
        _went(old, found)
    moved = [old for old, found in zip(asked, did, strict=True) if found.is_moved]
    assert {"think", "released in mid-visit", *UNBEGUN} <= {old.name for old in moved}
    return moved


def _went(old: Old, found: Outcome) -> None:
    how = "unbegun" if old.name in UNBEGUN else "replayed"
    assert (found.code or found.how) == STAYS.get(old.name, how), (old.name, found)
    assert found.is_moved is (old.name not in STAYS), old.name
    run = old.run
    assert (run.version, run.generation) == ((twin.version, 1) if found.is_moved else (agents.agent.version, 0)), (
        old.name
    )


def can_not_be_moved(released: Sequence[Released]) -> None:
    """To a version that sends something else where something was sent, and to one that is closed."""
    run = next(each.last for each in released if each.name == "begun by a ramp that was taken back")
    before = dump()
    found = _asked(run, "1.0.0", {"release_2": "release_1"})
    assert (found.code, found.is_moved) == ("would_repeat", False) and "tell at 0.1/1, which was sent" in found.why
    with pytest.raises(InvalidInput, match="to_version is closed to new starts"):
        _asked(run, "3.0.0", {"release_2": "release_3"})
    assert dump() == before


def _asked(run: Run, to: str, nodes: Mapping[str, str]) -> Outcome:
    body = {"from_version": run.version, "to_version": to, "nodes": nodes, "runs": [run.pk], "justification": WHY}
    (found,) = acts.migrate(run.agent, MigrateBody.model_validate(body), by=OLGA)
    return found


def fork(stage: Stage, old: Old) -> None:
    """From its second visit, and to its end: what the other one did stands for it, and nothing is done again."""
    assert str(old.run.state) == "completed"
    made = forking.fork(old.id, Wanted(2), by=OLGA, justification=WHY)
    effects = old.effects()
    for _ in range(8):
        stage.settle(made)
        for wait in waiting(made):
            questions.answer(made.pk, wait.pk, TAKE, by=OLGA, justification=WHY)
    made = Run.objects.get(pk=made.pk)
    assert (str(made.state), made.version) == ("completed", old.run.version), old.name
    assert output(made)["what"] == output(old.run)["what"] and len(events(made, e.AnswerTakenOver)) == 2
    assert Old("a fork", made.pk, old.what).effects() == [] and old.effects() == effects
    assert verify(made.pk).problems == [] and events(old.run, e.ForkMade)


def ended_by_its_version(old: Old, *, is_moved: bool) -> None:
    """Which code came to its end, and its record of that."""
    run = old.run
    assert run.version == (twin.version if is_moved else agents.agent.version), old.name
    assert len(events(run, e.RunMigrated)) == is_moved
    if str(run.state) == "completed":
        assert output(run).get("version") == (twin.version if is_moved else None), old.name
