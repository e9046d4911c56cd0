"""A run keeps the models it began with; a person may change them on record, and verification checks it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from pydantic_ai.messages import ModelResponse, ToolCallPart

from durableagents import Assistant, Context, End
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import Forbidden, IllegalTransition, InvalidInput, JustificationRequired, NotFound
from ledger.models import Head, OverrideRecord
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.models import Run
from runs.services import signals
from runs.services import thinking as moving
from runs.services.budgets import prices
from tests.integration.runs.stage import Stage
from tests.integration.runs.test_budgets import start
from tests.tampering import tamper
from tests.world import OLGA, Done, Notes, agent_of

WHY = "The first one is down since noon."
LARGE, SMALL = "openai:gpt-4.1", "openai:gpt-4.1-mini"
HERE = "scripted:mind"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")


@pytest.fixture
def asked(stage: Stage) -> list[str]:
    found: list[str] = []
    ask = stage.ask_model

    async def heard(assistant: Assistant, messages: list[Any], model: str) -> Any:
        found.append(model)
        return await ask(assistant, messages, HERE)

    stage.ask_model = heard
    return found


def thinking() -> Agent:
    def thought(messages: list[Any], info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("final_result", {"ref": "thought"})])

    mind = Assistant(name="mind", instructions="", output=Done, offline=thought)

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.think(mind, "once")
        await ctx.signal("go")
        return End((await ctx.think(mind, "twice")).ref)

    return agent_of(node, assistants=[mind])


def moved(run: Run, *models: str, by: Actor = OLGA, why: str = WHY, assistant: str = "") -> Run:
    return moving.move(run.id, models, assistant=assistant, by=by, justification=why)


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def waiting(stage: Stage) -> Run:
    run = start(thinking())
    assert stage.drive() == "parked"
    return run


def test_it_asks_the_others_from_the_next_request_on_and_that_is_on_record(stage: Stage, asked: list[str]) -> None:
    run = waiting(stage)
    assert [(a.assistant, a.models, a.by) for a in moving.asked_by(run.id)] == [("mind", [HERE], "system:settings")]
    moved(run, LARGE, SMALL)
    (_, chosen) = _choices(run)
    assert (chosen.models, chosen.assistant, chosen.by, chosen.n) == ([LARGE, SMALL], "", OLGA.ref, 1)
    (record,) = OverrideRecord.objects.filter(run_id=run.id)
    assert (record.action, record.justification, record.by) == ("models", WHY, OLGA.ref)
    assert [(a.assistant, a.models) for a in moving.asked_by(run.id)] == [
        ("mind", [LARGE, SMALL]),
        ("", [LARGE, SMALL]),
    ]
    signals.signal(run.id, "go", None, by=OLGA)
    assert stage.drive() == "completed"
    assert asked == [HERE, LARGE] and verify(run.id).problems == []


def _choices(run: Run) -> list[e.ModelsChosen]:
    return moving._choices(run.id)


def test_one_assistant_is_moved_and_the_last_word_counts(stage: Stage, asked: list[str]) -> None:
    run = waiting(stage)
    moved(run, LARGE)
    moved(run, SMALL, assistant="mind")
    signals.signal(run.id, "go", None, by=OLGA)
    assert stage.drive() == "completed" and asked == [HERE, SMALL]
    assert [row.n for row in _choices(run)] == [0, 1, 2] and verify(run.id).problems == []


def test_before_it_asked_anybody_the_choice_is_the_persons(stage: Stage, asked: list[str]) -> None:
    run = start(thinking())
    moved(run, SMALL)
    assert stage.drive() == "parked"
    assert asked == [SMALL] and len(_choices(run)) == 1


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("models", "assistant", "field", "told"),
    [
        (["gpt-4.1"], "", "models", "'gpt-4.1' is not a model: give provider:model"),
        (["nobody:model"], "", "models", "nobody:model can't be used here"),
        (["anthropic:claude-sonnet-4-0"], "", "models", "can't be used here"),
        ([], "", "models", "none is named"),
        ([HERE, HERE], "", "models", "named twice"),
        (["scripted:other"], "", "models", "scripted:other is not a model of mind"),
        ([LARGE], "soul", "assistant", "has no assistant 'soul'"),
        (["openai:" + "x" * 300], "", "models", "is not a model: give provider:model"),
        (["openai:a\x00b"], "", "models", "is not a model: give provider:model"),
    ],
)
def test_what_can_not_be_asked_is_refused_by_name_and_nothing_is_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, models: list[str], assistant: str, field: str, told: str
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    run = waiting(stage)
    before = Head.objects.get(run_id=run.pk).seq
    with pytest.raises(InvalidInput) as refused:
        moved(run, *models, assistant=assistant)
    (error,) = refused.value.extra["errors"]
    assert error["field"] == field and told in error["problem"]
    assert Head.objects.get(run_id=run.pk).seq == before and not OverrideRecord.objects.filter(run_id=run.id).exists()


def test_under_a_cap_in_dollars_the_others_need_a_price(stage: Stage) -> None:
    prices.add_price(HERE, usd_micro_in=1, usd_micro_out=1, by="user:anna")
    prices.add_price(LARGE, usd_micro_in=1, usd_micro_out=1, by="user:anna")
    prices.table.read()
    run = start(thinking(), usd=5)
    with pytest.raises(InvalidInput, match=r"(?i)no price for openai:gpt-4\.1-mini"):
        moved(run, LARGE, SMALL)
    moved(run, LARGE)


@pytest.mark.parametrize("role", ["integrator", "approver_finance", "auditor"])
def test_only_operators_do_it(stage: Stage, role: str) -> None:
    run = waiting(stage)
    with pytest.raises(Forbidden, match="Only an operator may choose the models"):
        moved(run, LARGE, by=Actor(kind="user", name="ida", role=role, person=99))


def test_nothing_is_locked_while_a_providers_code_is_loaded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds in a process that has asked no model yet, and the run's worker would wait."""
    run = waiting(stage)
    looked: list[tuple[str, bool]] = []
    build = moving.real_model

    def seen(model: str) -> Any:
        looked.append((model, connection.in_atomic_block))
        return build(model)

    monkeypatch.setattr(moving, "real_model", seen)
    moved(run, LARGE, SMALL)
    assert looked == [(LARGE, False), (SMALL, False)] and len(_choices(run)) == 2


def test_what_can_not_be_asked_is_told_only_to_who_may_move_the_run(stage: Stage) -> None:
    run = waiting(stage)
    with pytest.raises(Forbidden):
        moved(run, "no model", by=Actor(kind="user", name="ida", role="auditor", person=99))
    with pytest.raises(NotFound):
        moving.move(uuid4(), ["no model"], by=OLGA, justification=WHY)
    with pytest.raises(JustificationRequired):
        moved(run, "no model", why=" ")


def test_it_needs_a_reason_and_a_run_that_goes_on(stage: Stage) -> None:
    run = waiting(stage)
    with pytest.raises(JustificationRequired):
        moved(run, LARGE, why=" ")
    signals.signal(run.id, "go", None, by=OLGA)
    assert stage.drive() == "completed"
    with pytest.raises(IllegalTransition):
        moved(run, LARGE)
    with pytest.raises(NotFound):
        moving.move(uuid4(), [LARGE], by=OLGA, justification=WHY)


def test_a_choice_without_its_record_and_one_that_nobody_made_are_found(stage: Stage) -> None:
    run = waiting(stage)
    moved(run, LARGE)
    tamper("DELETE FROM ledger_overriderecord WHERE run_id = %s", run.id)
    assert any("ModelsChosen, is a person's act without an override record" in p for p in verify(run.id).problems)


def test_a_choice_that_was_put_there_by_somebody_else_stops_the_run(stage: Stage, asked: list[str]) -> None:
    run = waiting(stage)
    moved(run, LARGE)
    tamper(
        "UPDATE ledger_event SET "
        "clear = convert_to(replace(convert_from(clear, 'UTF8'), 'gpt-4.1', 'gpt-9.9'), 'UTF8') "
        "WHERE run_id = %s AND kind = 'ModelsChosen' AND seq > 5",
        run.id,
    )
    signals.signal(run.id, "go", None, by=OLGA)
    assert stage.drive() not in ("completed", "parked")
    assert asked == [HERE]
    assert [wait.kind for wait in fresh(run).waits.filter(resolved_at__isnull=True)] == ["operator"]
