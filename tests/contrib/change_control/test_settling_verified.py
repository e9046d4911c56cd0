from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from durableagents.contrib.change_control.models import FourEyes
from ledger import events as e
from ledger.actors import Actor
from ledger.append import append
from ledger.errors import Forbidden, IllegalTransition
from ledger.models import Event
from runs.models import Run
from runs.services import authority
from tests.contrib.change_control.test_settling import (
    DID_NOT,
    FAMILIES,
    SEEN,
    ann,
    ben,
    guarded,
    refused_late,
    run,
    says,
    taken_back,
    two,
    word,
)
from tests.integration.approvals.setup import WHY
from tests.integration.runs.conftest import _agents_of_this_test, _django_db_marker, outside, situations, stage, tools  # noqa: F401 (fixtures)
from tests.integration.runs.situations import Situations
from tests.integration.runs.stage import Stage, events, fresh, now, problems
from tests.tampering import tamper

__all__ = ["ann", "ben", "run", "two"]  # fixtures


def test_someone_who_said_the_first_word_took_part_in_the_run(run: Run, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    says(run, ben)
    assert "settled the outcome of a call" in str(authority.own_act(fresh(run), ann.person, "ann"))
    assert "settled a call" in str(authority.own_act(fresh(run), ben.person, "ben"))


def test_a_forged_first_word_settles_nothing(run: Run, ann: Actor, ben: Actor) -> None:
    says(run, ann, DID_NOT)
    authentic = Event.objects.get(run_id=run.id, kind="OutcomeProposed")
    tamper(
        "UPDATE ledger_event SET clear = replace(encode(clear, 'escape'), '\"person\":' || %s, '\"person\":4711')"
        "::bytea WHERE run_id = %s AND seq = %s",
        str(ann.person),
        run.id,
        authentic.seq,
    )
    assert word(run) is None, "no page shows it either"
    with pytest.raises(IllegalTransition, match="The run's journal is damaged"):
        says(run, ann, DID_NOT)
    assert events_of(run, "ToolReconciled") == 0


def events_of(run: Run, kind: str) -> int:
    return Event.objects.filter(run_id=run.id, kind=kind).count()


def guarded_since(ago: timedelta) -> None:
    row = FourEyes(n=FourEyes.objects.count() + 1, families=FAMILIES, set_by="user:boss", at=now() - ago)
    row.seal()
    row.save(force_insert=True)


def test_what_one_settled_alone_where_it_takes_two_is_found(situations: Situations, ann: Actor) -> None:
    run = situations.make("unknown")
    says(run, ann)
    assert problems(run) == []
    guarded_since(timedelta(minutes=5))
    assert any("by one person, although two people must settle it" in found for found in problems(run))


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nobody": ({}, {"proposal": 7}, "nobody had proposed it"),
    "the same person": ({}, {"by": "user:ann", "same": True}, "is by the same person"),
    "another verdict": ({"verdict": "did_not"}, {}, "has a different verdict"),
    "another question": ({"question": 3}, {}, "has a different verdict"),
    "another receipt": ({"payload": {"receipt": {"ref": "x"}, "justification": WHY}}, {}, "has a different receipt"),
}


@pytest.mark.parametrize("how", WRONG)
def test_an_agreement_that_is_none_is_found(situations: Situations, ann: Actor, ben: Actor, how: str) -> None:
    run = situations.make("unknown")
    first, second, result = WRONG[how]
    intent = events(run, e.ToolInvoked)[0]
    place: dict[str, Any] = {"slot": intent.slot, "attempt": 0, "tool": "mail"}
    proposed: dict[str, Any] = {
        "verdict": "happened",
        "says": "",
        "by": ann.ref,
        "role": "operator",
        "person": ann.person,
        "question": 0,
        "payload": {"receipt": SEEN, "justification": WHY},
    } | first
    person = ann.person if second.get("same") else ben.person
    settled = {"receipt": SEEN, "result": SEEN | {"amount": 0}, "justification": WHY, "person": person}
    settled["proposal"] = second.get("proposal", 0)
    append(run.id, e.OutcomeProposed(**place, **proposed), by=ann)
    by = second.get("by", ben.ref)
    append(run.id, e.ToolReconciled(**place, verdict="happened", by=by, payload=settled), by=ben)
    assert any(result in found for found in problems(run))


def test_agreement_with_a_withdrawn_word_is_found(run: Run, stage: Stage, ann: Actor, ben: Actor) -> None:
    intent = events(run, e.ToolInvoked)[0]
    place: dict[str, Any] = {"slot": intent.slot, "attempt": 0}
    settled = {"receipt": SEEN, "result": SEEN, "justification": WHY, "person": ben.person}
    says(run, ann)
    taken_back(run, ann)
    with transaction.atomic():
        event = e.ToolReconciled(
            **place, tool="mail", verdict="happened", by=ben.ref, payload=settled | {"proposal": 0}
        )
        append(run.id, event, by=ben)
        assert any("was withdrawn" in found for found in problems(run))
        transaction.set_rollback(True)
    says(run, ann)
    refused_late(stage, run)
    event = e.ToolReconciled(**place, tool="mail", verdict="happened", by=ben.ref, payload=settled | {"proposal": 1})
    append(run.id, event, by=ben)
    assert any("new information about the call came after event" in found for found in problems(run))


def test_names_that_change_hands_make_nobody_one_person(run: Run, ann: Actor, ben: Actor) -> None:
    says(run, ann)
    for old, new in (("ann", "anna"), ("ben", "ann")):
        user = User.objects.get(username=old)
        user.username = new
        user.save()
    assert says(run, replace(ben, name="ann")) is None
    assert problems(run) == []


def test_a_forged_rule_with_the_last_number_is_said_to_be_in_the_way(run: Run, ann: Actor, ben: Actor) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_foureyes (n, families, set_by, at, code) VALUES (%s, '{}', 'user:x', now(), %s)",
            [2**63 - 1, b"x" * 32],
        )
    assert says(run, ann) is not None, "two still settle it"
    with pytest.raises(Forbidden, match="not written by this installation"):
        guarded("roles")
