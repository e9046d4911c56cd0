"""Two people settle an unknown outcome: one verdict changes nothing, an equal second one settles it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from durableagents import TransportError
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.models import FourEyes
from durableagents.contrib.change_control.setting import GuardsBody
from ledger import events as e
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, Forbidden, IllegalTransition, InvalidInput, JustificationRequired
from ledger.models import ActRecord, Event
from runs.engine.outcomes import LateAnswer
from runs.models import Run, Wait
from runs.queries.run_facts import read_facts
from runs.queries.status import status_of
from runs.services import lifecycle, reconciling
from runs.services.late_results import lost_worker, record_late_result
from runs.services.settling import agreeing
from runs.services.settling.agreeing import AlreadySaid, NothingProposed, Proposal, newest
from tests.integration.approvals.setup import WHY, boss, somebody
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, situations, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import (
    Stage,
    at_once,
    dump,
    events,
    facts,
    fresh,
    kinds,
    output,
    overrides,
    problems,
    waiting,
)
from tests.rewriting import rewrite
from tests.world import Outside, Toolbox

SEEN = {"ref": "seen there"}
FAMILIES = ["outcomes", "roles"]
HAPPENED: dict[str, Any] = {"verdict": "happened", "receipt": SEEN}
DID_NOT: dict[str, Any] = {"verdict": "did_not"}


@pytest.fixture
def ann(stage: Stage) -> Actor:
    return somebody("ann", "operator")


@pytest.fixture
def ben(stage: Stage) -> Actor:
    return somebody("ben", "operator")


@pytest.fixture
def two(ann: Actor, ben: Actor) -> None:
    boss()
    somebody("second", is_superuser=True, is_staff=True)
    guarded(*FAMILIES)


def guarded(*families: str) -> None:
    by = User.objects.get(username="boss")
    guards_body = GuardsBody(families=list(families), justification=WHY)
    guards.require(guards_body, by=Actor("os", "root", role="admin", auth="shell", person=by.pk))


@pytest.fixture
def run(situations: Situations, two: None) -> Run:
    return situations.make("unknown")


def says(run: Run, by: Actor, said: dict[str, Any] = HAPPENED, why: str = "looked it up") -> Proposal | None:
    return reconciling.reconcile(run.id, **said, justification=why, by=by)


def word(run: Run) -> Proposal | None:
    return next(iter(newest(run.waits.filter(resolved_at__isnull=True)).values()), None)


# --- the main case ----------------------------------------------------------------------------------------------------


def test_second_word_settles_it(run: Run, stage: Stage, outside: Outside, ann: Actor, ben: Actor) -> None:
    before = fresh(run)
    first = says(run, ann)
    assert (
        first is not None
        and first.is_open
        and (first.by, first.verdict, first.receipt) == ("user:ann", "happened", SEEN)
    )
    after = fresh(run)
    assert (after.state, after.ready_at, after.updated_at) == (before.state, before.ready_at, before.updated_at)
    assert kinds(run)[-1] == "OutcomeProposed" and overrides(run) == [] and facts(run) == ["pending", "unknown"]
    assert [w.kind for w in waiting(run)] == ["reconcile"] and stage.drive() == "idle" and word(run) == first
    act = ActRecord.objects.get(run_id=run.id, action="outcome_propose")
    assert (act.by, act.person, act.justification) == ("user:ann", ann.person, "looked it up")
    assert act.after == {"tool": "mail", "verdict": "happened", "attempt": 0}
    assert problems(run) == []
    assert says(run, ben, why="I see it there too") is None
    (settled,) = events(run, e.ToolReconciled)
    assert (settled.by, settled.payload["proposal"], settled.payload["person"]) == ("user:ben", 0, ben.person)
    assert [o.action for o in overrides(run)] == ["reconcile"] and waiting(run) == []
    assert stage.drive() == "completed" and output(run) == "seen there" and len(outside.requests) == 1
    assert problems(run) == []


def test_two_denials_send_it_again_once(run: Run, stage: Stage, outside: Outside, ann: Actor, ben: Actor) -> None:
    assert says(run, ann, DID_NOT) is not None and stage.drive() == "idle" and len(outside.requests) == 1
    # What did not happen has no receipt to differ in.
    assert says(run, ben, DID_NOT | {"receipt": "none there"}) is None
    assert stage.drive() == "completed" and len(outside.requests) == 2 and problems(run) == []


def test_another_word_takes_the_place_of_the_first(run: Run, stage: Stage, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    for value in (DID_NOT, {"verdict": "happened", "receipt": {"ref": "another"}}):
        found = says(run, ben, value)
        assert found is not None and found.by == "user:ben" and waiting(run) != []
    assert [x.n for x in events(run, e.OutcomeProposed)] == [0, 1, 2]
    assert says(run, ann, {"verdict": "happened", "receipt": {"ref": "another"}}) is None
    assert stage.drive() == "completed" and output(run) == "another" and problems(run) == []


def test_nobody_is_two_people(run: Run, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    fiona = somebody("fiona", "approver_finance")
    before = dump()
    with pytest.raises(AlreadySaid, match="another operator must confirm"):
        says(run, ann)
    for by in (ann, ben):
        with pytest.raises(Forbidden, match="An API key can't"):
            says(run, replace(by, kind="key", auth="api_key"))
    with pytest.raises(Forbidden):
        says(run, fiona)
    assert dump() == before
    renamed = User.objects.get(pk=ann.person)
    renamed.username = "anna"
    renamed.save()
    with pytest.raises(AlreadySaid):
        says(run, replace(ann, name="anna"))


def test_what_stops_is_never_held_up(run: Run, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    assert says(run, replace(ben, kind="key"), {"verdict": "fail"}) is None
    assert str(fresh(run).state) == "failed" and word(run) is None and problems(run) == []


def test_retry_discards_the_first_word(run: Run, stage: Stage, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    says(run, ben, {"verdict": "fail"})
    lifecycle.retry(run.id, by=ben, justification="look again")
    assert stage.drive() == "parked" and word(run) is None
    found = says(run, ben)
    assert found is not None and found.n == 1
    assert says(run, ann) is None and stage.drive() == "completed" and problems(run) == []


# --- events in between ------------------------------------------------------------------------------------------------


def test_someone_who_has_lost_the_role_says_nothing(run: Run, ann: Actor) -> None:
    rewrite(User.objects.filter(pk=ann.person), is_active=False)
    with pytest.raises(Forbidden, match="an operator with an active account"):
        says(run, ann)
    assert "OutcomeProposed" not in kinds(run)


def refused_late(stage: Stage, run: Run) -> None:
    """Let the sending worker report a refusal, which settles nothing but is news."""
    intent = events(run, e.ToolInvoked)[-1]
    late = LateAnswer(str(run.id), intent.slot, intent.attempt, "mail", failure={"code": "no", "message": "refused"})
    assert record_late_result(late, lost_worker(stage.hire().id)) is False


def test_what_was_told_of_the_call_since_is_looked_at_first(run: Run, stage: Stage, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    refused_late(stage, run)
    stale = word(run)
    assert stale is not None and not stale.is_open and stale.news == len(kinds(run))
    found = says(run, ben)  # ann said it without knowing that
    assert found is not None and found.is_open and found.by == "user:ben" and waiting(run) != []
    assert says(run, ann) is None and problems(run) == []


def test_what_comes_from_the_outside_settles_it_and_the_second_is_told(
    situations: Situations, two: None, stage: Stage, outside: Outside, tools: Toolbox, ann: Actor, ben: Actor
) -> None:
    run = situations.make("unknown")
    says(run, ann)
    intent = events(run, e.ToolInvoked)[-1]
    late = LateAnswer(str(run.id), intent.slot, intent.attempt, "mail", {"ref": "mail:late", "amount": 1}, "mail:late")
    assert record_late_result(late, lost_worker(stage.hire().id)) is True
    with pytest.raises(IllegalTransition):
        says(run, ben)
    with pytest.raises(NothingProposed):
        agreeing.take_back(run.id, Wait.objects.get(run=run, kind="reconcile").pk, by=ann, justification=WHY)
    assert stage.drive() == "completed" and output(run) == "mail:late" and problems(run) == []


def test_the_same_is_asked_of_two_when_the_run_is_cancelled(run: Run, stage: Stage, ann: Actor, ben: Actor) -> None:
    lifecycle.cancel(run.id, by=ann, justification="no longer wanted")
    assert says(run, ann) is not None and stage.drive() == "idle"
    assert says(run, ben) is None and stage.drive() == "cancelled" and problems(run) == []


def test_rule_counts_while_it_is_in_force(situations: Situations, stage: Stage, ann: Actor, ben: Actor) -> None:
    run = situations.make("unknown")
    boss()
    somebody("second", is_superuser=True, is_staff=True)
    guarded(*FAMILIES)
    assert says(run, ann) is not None
    guarded()
    assert says(run, ann) is None and stage.drive() == "completed" and problems(run) == []


# --- reporting --------------------------------------------------------------------------------------------------------


def told(run: Run) -> tuple[str, str]:
    found = status_of(read_facts(run.pk))
    assert found.reason == "unknown_outcome" and found.who.roles == ["operator"]
    return found.sentence, found.who.but


# --- withdrawing ------------------------------------------------------------------------------------------------------


def taken_back(run: Run, by: Actor, why: str = "I looked at another one") -> None:
    agreeing.take_back(run.id, Wait.objects.get(run=run, resolved_at__isnull=True).pk, justification=why, by=by)


def test_what_was_said_can_be_taken_back_by_anyone_who_said_it(run: Run, ann: Actor, ben: Actor) -> None:
    with pytest.raises(NothingProposed):
        taken_back(run, ann)
    says(run, ann)
    for by, error in ((ben, Forbidden), (replace(ann, kind="key"), Forbidden)):
        with pytest.raises(error):
            taken_back(run, by)
    with pytest.raises(JustificationRequired):
        taken_back(run, ann, " ")
    taken_back(run, ann)
    assert kinds(run)[-1] == "OutcomeWithdrawn" and word(run) is None
    with pytest.raises(NothingProposed):
        taken_back(run, ann)
    assert ActRecord.objects.filter(run_id=run.id, action="outcome_withdraw", by="user:ann").count() == 1
    found = says(run, ben)
    assert found is not None and found.n == 1, "nobody agreed with anybody"
    assert says(run, ann) is None and problems(run) == []


def test_agreement_names_its_word(run: Run, stage: Stage, outside: Outside, ann: Actor, ben: Actor) -> None:
    says(run, ann, DID_NOT)
    (wait,) = waiting(run)
    agreeing_with = DID_NOT | {"agrees_with": 0}
    with pytest.raises(InvalidInput, match="Give `wait_id` with `agrees_with`"):
        says(run, ben, agreeing_with)
    assert says(run, ben, agreeing_with | {"wait_id": wait.pk}) is None
    outside.trouble("mail", TransportError("cut"), when="after")
    assert stage.drive() == "parked" and len(outside.requests) == 2
    with pytest.raises(InvalidInput, match="have or had unknown outcomes"):
        says(run, ann, DID_NOT)
    says(run, ann, DID_NOT | {"wait_id": waiting(run)[0].pk})
    with pytest.raises(IllegalTransition):
        says(run, ben, agreeing_with | {"wait_id": wait.pk})
    assert stage.drive() == "idle" and len(outside.requests) == 2 and problems(run) == []


# --- at once ----------------------------------------------------------------------------------------------------------


def test_many_say_the_same_at_once_and_it_is_settled_once(run: Run, stage: Stage, outside: Outside) -> None:
    many = [somebody(f"op{n}", "operator") for n in range(12)]
    answers = at_once(*(partial(says, run, by, DID_NOT) for by in many))
    assert sum(isinstance(a, Proposal) for a in answers) == 1 and sum(a is None for a in answers) == 1
    assert all(isinstance(a, Proposal | IllegalTransition | None) for a in answers)
    assert len(events(run, e.ToolReconciled)) == 1 and stage.drive() == "completed" and len(outside.requests) == 2
    assert problems(run) == []


def test_word_and_rule_at_once_have_an_order(situations: Situations, stage: Stage, ann: Actor, ben: Actor) -> None:
    boss()
    somebody("second", is_superuser=True, is_staff=True)
    for n in range(6):
        if n:
            guarded()
        run = situations.make("unknown")
        answers = at_once(partial(says, run, ann), partial(guarded, *FAMILIES))
        assert [a for a in answers if isinstance(a, Exception)] == []
        rule, at = FourEyes.objects.latest("n"), Event.objects.filter(run_id=run.id).latest("seq").at
        assert (kinds(run)[-1] == "OutcomeProposed") == (rule.at < at)
        if says_again(run, ben):
            assert stage.drive() == "completed"
        assert problems(run) == []


def says_again(run: Run, by: Actor) -> bool:
    if waiting(run):
        says(run, by)
    return True


def test_saying_and_taking_back_at_once_leaves_one_of_both(run: Run, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    answers = at_once(partial(says, run, ben), partial(taken_back_quietly, run, ann))
    assert not [a for a in answers if isinstance(a, Exception) and not isinstance(a, DurableAgentsError)]
    is_settled = bool(events(run, e.ToolReconciled))
    assert is_settled != ("OutcomeWithdrawn" in kinds(run)) and problems(run) == []


def taken_back_quietly(run: Run, by: Actor) -> None:
    agreeing.take_back(run.id, Wait.objects.get(run=run, kind="reconcile").pk, justification=WHY, by=by)
