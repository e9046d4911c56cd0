from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.conf import settings

from durableagents import Agent, Context, End, Migration
from ledger import events as e
from runs.engine.agents import registry
from runs.engine.errors import DefinitionError
from runs.engine.fingerprint import first_scheme, second_scheme
from runs.engine.fingerprint.words import differences
from runs.models import Run
from runs.services import lifecycle, trial
from tests.cases import each_case
from tests.contrib.releases.moving import NAME, moved, seen
from tests.contrib.releases.test_migrating import go, parked, sound
from tests.integration.runs.stage import Stage, dump, events, fresh, output
from tests.integration.runs.test_other_code import announce
from tests.world import OLGA, Notes, Toolbox, agent_of

ONE = {"hold": "hold"}


def to_two(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"seen": [*state["seen"], "two"]}


def to_three(state: dict[str, Any]) -> Notes:
    return Notes.model_validate(state | {"seen": [*state["seen"], "three"]})


def broken(state: dict[str, Any]) -> dict[str, Any]:
    state["seen"].append("half done")
    raise KeyError("no such customer")


async def later(state: Any) -> Any:
    return state


UPGRADERS: dict[str, dict[int, Any]] = {"1.0.0": {}, "2.0.0": {1: to_two}, "3.0.0": {1: to_two, 2: to_three}}


def version(number: str, **more: Any) -> Agent:
    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        return End(state.seen)

    return agent_of(hold, name=NAME, version=number, **({"upgraders": UPGRADERS.get(number, {})} | more))


# --- declarations -----------------------------------------------------------------------------------------------------


@each_case(
    ("upgraders", "said"),
    [
        ({1: to_two, 3: to_three}, "the step from 2 to 3 is missing"),
        ({2: to_three}, "the step from 1 to 2 is missing"),
        ({1: to_two, 10**12: to_three}, "the step from 2 to 3 is missing"),
        ({0: to_two}, "upgraders are numbered from 1, and 0 is"),
        ({-1: to_two, 1: to_two}, "upgraders are numbered from 1, and -1 is"),
        ({True: to_two}, "upgraders are numbered from 1, and True is"),
        ({"1": to_two}, "upgraders are numbered from 1, and '1' is"),
        ({1: later}, "upgrader 1 must be a plain module-level function"),
        ({1: "to_two"}, "upgrader 1 must be a plain module-level function"),
        ({1: partial(to_two)}, "upgrader 1 must be a plain module-level function"),
        ({1: Notes.model_validate}, "upgrader 1 must be a plain module-level function"),
        ({1: Notes}, "upgrader 1 must be a plain module-level function"),
        ([to_two], "is not a mapping"),
    ],
)
def test_what_leads_nowhere_is_refused_by_name_before_anything_runs(upgraders: Any, said: str) -> None:
    try:
        with pytest.raises(DefinitionError, match=said) as refused:
            version("9.0.0", upgraders=upgraders)
        assert "mover@9.0.0" in str(refused.value)
    finally:
        registry.remove("mover@9.0.0")


@each_case("given", [partial(to_two), Notes, Notes.model_validate, "to_two", later])
def test_a_migration_s_function_is_one_that_the_record_can_name(given: Any) -> None:
    try:
        with pytest.raises(DefinitionError, match="state must be a plain function"):
            version("9.0.0", upgraders={}, migrations=[Migration("1.0.0", {}, given)])
    finally:
        registry.remove("mover@9.0.0")


def test_the_first_scheme_did_not_see_them_so_code_with_some_is_never_its() -> None:
    plain = version("2.0.0", upgraders={})
    first, second = first_scheme(plain), second_scheme(plain)
    assert plain.is_own(first) and plain.is_own(second)
    ours = version("2.0.0")
    assert first_scheme(ours) == first and not ours.is_own(first) and not ours.is_own(second)


def test_the_fingerprint_covers_them_and_says_what_differs() -> None:
    def other(state: dict[str, Any]) -> dict[str, Any]:
        return state | {"seen": ["another"]}

    plain, without = version("2.0.0", upgraders={}), version("2.0.0", upgraders={})
    assert plain.fingerprint() == without.fingerprint() and "upgraders" not in plain.parts()
    ours = version("2.0.0")
    theirs = version("2.0.0", upgraders={1: other})
    assert len({plain.fingerprint(), ours.fingerprint(), theirs.fingerprint()}) == 3
    assert (plain.schema_version, ours.schema_version, version("3.0.0").schema_version) == (1, 2, 3)
    assert any(line.startswith("upgrader 1:") for line in differences(plain.parts(), ours.parts()))
    assert any(line.startswith("upgrader 1:") for line in differences(ours.parts(), theirs.parts()))
    assert any(line.startswith("upgrader 2:") for line in differences(ours.parts(), version("3.0.0").parts()))


# --- a migration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "to", "made"),
    [
        ("1.0.0", "3.0.0", ["two", "three"]),
        ("1.0.0", "2.0.0", ["two"]),
        ("2.0.0", "3.0.0", ["three"]),
        ("3.0.0", "3.1.0", []),
    ],
)
def test_a_moved_state_is_brought_up_step_by_step(stage: Stage, of: str, to: str, made: list[str]) -> None:
    run = parked(stage, version(of))
    version(to, **({"upgraders": UPGRADERS["3.0.0"]} if to == "3.1.0" else {}))
    before = dump()
    assert seen(run, nodes=ONE, of=of, to=to).how == "replayed" and dump() == before
    assert moved(run, nodes=ONE, of=of, to=to).how == "replayed"
    (event,) = events(run, e.RunMigrated)
    state_upgraded_by = event.payload.get("state_upgraded_by", [])
    assert [each["name"].rpartition(".")[2] for each in state_upgraded_by] == [f"to_{word}" for word in made]
    assert all(len(each["source"]) == 64 for each in state_upgraded_by) and event.payload["state"]["seen"] == made
    sound(run)
    go(run)
    assert stage.settle(run) == "completed" and output(run) == made
    sound(run)


def test_each_step_is_done_once_however_often_a_run_is_moved(stage: Stage) -> None:
    run = parked(stage, version("1.0.0"))
    version("2.0.0")
    version("3.0.0")
    assert moved(run, nodes=ONE).is_moved and moved(run, nodes=ONE, of="2.0.0", to="3.0.0").is_moved
    stage.settle(run)
    go(run)
    assert stage.settle(run) == "completed" and output(run) == ["two", "three"]
    sound(run)


def test_a_number_of_later_is_refused_by_name_until_somebody_says_what_becomes_of_it(stage: Stage) -> None:
    run = parked(stage, version("3.0.0"))
    version("2.0.0")
    before = dump()
    for found in (seen(run, nodes=ONE, of="3.0.0"), moved(run, nodes=ONE, of="3.0.0")):
        assert (found.how, found.code) == ("refused", "state_number")
        assert "the state of mover@2.0.0 is of format 3" in found.why and "reads up to 2" in found.why
    assert dump() == before
    version("2.0.0", migrations=[Migration("3.0.0", {}, lambda state: state | {"seen": ["taken back"]})])
    assert moved(run, nodes=ONE, of="3.0.0").how == "replayed"
    go(run)
    assert stage.settle(run) == "completed" and output(run) == ["taken back"]
    sound(run)


def test_a_migration_s_own_function_goes_before_the_steps(stage: Stage) -> None:
    run = parked(stage, version("1.0.0"))
    version("3.0.0", migrations=[Migration("1.0.0", {}, lambda state: state | {"seen": ["by hand"]})])
    assert moved(run, nodes=ONE, to="3.0.0").how == "replayed"
    (event,) = events(run, e.RunMigrated)
    assert event.payload["state"]["seen"] == ["by hand"] and "state_upgraded_by" not in event.payload
    sound(run)


def test_a_version_whose_code_is_gone_has_its_number_on_record(stage: Stage) -> None:
    run = parked(stage, version("2.0.0"))
    announce(stage)
    registry.remove("mover@2.0.0")
    version("3.0.0")
    assert moved(run, nodes=ONE, of="2.0.0", to="3.0.0").how == "replayed"
    assert events(run, e.RunMigrated)[0].payload["state"]["seen"] == ["three"]
    sound(run)


def test_a_step_that_breaks_or_never_ends_changes_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(state: dict[str, Any]) -> dict[str, Any]:
        while True:
            state["n"] = 1

    run = parked(stage, version("1.0.0"))
    before = dump()
    version("2.0.0", upgraders={1: broken})
    found = moved(run, nodes=ONE)
    assert found.code == "state_function" and "no such customer" in found.why
    monkeypatch.setattr(trial, "TIMEOUT_SECONDS", 0.5)
    version("2.0.0", upgraders={1: endless})
    assert moved(run, nodes=ONE).code == "too_slow"
    monkeypatch.setattr(trial, "TIMEOUT_SECONDS", 10.0)
    version("2.0.0", upgraders={1: lambda state: {"seen": 7}})
    assert moved(run, nodes=ONE).code == "state_misfit"
    assert dump() == before and fresh(run).generation == 0


# --- a checkpoint of other code of the version ------------------------------------------------------------------------


def again(stage: Stage, number: str, **more: Any) -> Agent:
    agent = version(number, **more)
    announce(stage)
    return agent


def parked_by(stage: Stage, agent: Agent) -> Run:
    announce(stage)
    return parked(stage, agent)


def test_a_checkpoint_of_an_older_number_is_brought_up(stage: Stage) -> None:
    run = parked_by(stage, version("1.0.0"))
    again(stage, "1.0.0", upgraders=UPGRADERS["3.0.0"])
    go(run)
    assert stage.settle(run) == "completed" and output(run) == ["two", "three"]
    sound(run)


@pytest.mark.parametrize(
    ("wrote", "reads", "reason", "problem"),
    [
        (UPGRADERS["3.0.0"], UPGRADERS["2.0.0"], "unknown_format", "is of format 3"),
        (UPGRADERS["1.0.0"], {1: broken}, "bad_checkpoint", "no such customer"),
    ],
    ids=["a later number", "a broken step"],
)
def test_checkpoint_without_a_way_up_stops(stage: Stage, wrote: Any, reads: Any, reason: str, problem: str) -> None:
    run = parked_by(stage, version("1.0.0", upgraders=wrote))
    again(stage, "1.0.0", upgraders=reads)
    go(run)
    assert stage.settle(run) == "operator"
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == reason and problem in stop.payload["problem"]
    sound(run)


def test_a_checkpoint_of_code_that_nobody_knows_is_not_guessed_at(stage: Stage) -> None:
    run = parked(stage, version("1.0.0", upgraders=UPGRADERS["2.0.0"]))
    again(stage, "1.0.0", upgraders=UPGRADERS["3.0.0"])
    go(run)
    assert stage.settle(run) == "operator"
    (stop,) = events(run, e.OperatorNeeded)
    assert stop.reason == "unknown_format" and "number of its state is unknown" in stop.payload["problem"]


def test_production_upgrades_once_after_a_look(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = parked_by(stage, version("1.0.0"))
    own = again(stage, "1.0.0", upgraders=UPGRADERS["2.0.0"])
    monkeypatch.setattr(settings, "DURABLEAGENTS", settings.DURABLEAGENTS.model_copy(update={"stage": "production"}))
    go(run)
    assert stage.settle(run) == "operator" and events(run, e.OperatorNeeded)[0].reason == "other_code"
    lifecycle.retry(run.id, by=OLGA, justification="it may")
    assert stage.settle(run) == "completed" and output(run) == ["two"] and own.schema_version == 2
    sound(run)


def test_a_run_of_older_code_is_moved_by_the_number_that_its_state_has(stage: Stage) -> None:
    """Its version's code has changed under the same name: the state's writer counts."""
    run = parked_by(stage, version("1.0.0"))
    again(stage, "1.0.0", upgraders=UPGRADERS["2.0.0"])
    version("3.0.0")
    assert moved(run, nodes=ONE, to="3.0.0").how == "replayed"
    assert events(run, e.RunMigrated)[0].payload["state"]["seen"] == ["two", "three"]
    sound(run)


def test_no_tool_of_a_run_is_called_before_its_state_is_brought_up(stage: Stage, tools: Toolbox) -> None:
    async def hold(state: Notes, ctx: Context) -> End:
        await ctx.signal("go")
        await ctx.call(tools.order, {"name": "x"})
        return End()

    run = parked_by(stage, agent_of(hold, name=NAME, tools=tools.all()))
    agent_of(hold, name=NAME, tools=tools.all(), upgraders={1: broken})
    announce(stage)
    go(run)
    assert stage.settle(run) == "operator" and tools.outside.requests == []
