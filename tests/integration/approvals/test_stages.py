"""Several people decide one call: each once, in order, deputies included; record and database enforce it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import Error, IntegrityError, OperationalError, connections, transaction

from approvals.models import Approval, Decision, Seat
from approvals.queues import acts
from approvals.queues.acts import LimitBody
from approvals.services import AlreadyDecided, AlreadyVoted, OtherStage, StalePlan, decide
from approvals.votes import NotCounted
from durableagents import Context, End, Gate, Rejected, Stage
from ledger import events as e
from ledger.actors import Actor
from ledger.append import append
from ledger.errors import DurableAgentsError, Forbidden
from runs.engine.agents import Agent
from runs.models import Wait
from tests.integration.api.conftest import Api, is_problem, issue_key
from tests.integration.approvals.setup import WHY, boss, limited, somebody
from tests.integration.approvals.timing import make_late
from tests.integration.console.conftest import Reader, text_of
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage as Fleet
from tests.integration.runs.stage import dump, events, problems
from tests.tampering import tamper
from tests.world import Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db
FINANCE, LEGAL = "approver_finance", "approver_legal"
LEGAL_THEN_TWO = Gate("legal", "large sums", then=[Stage("finance_po", 2)])
TWO = Gate("finance_po", "large sums", quorum=2)
ONE = Gate("finance_po", "large sums")


def buying(tools: Toolbox, gate: Gate, tries: int = 1) -> Agent:
    pay = replace(tools.pay, gate=gate)

    async def node(state: Notes, ctx: Context) -> End:
        for n in range(tries):
            try:
                return End((await ctx.call(pay, Item(name="po", amount=5000 + n))).ref)
            except Rejected:
                if n == tries - 1:
                    raise
        raise AssertionError("unreachable")

    return agent_of(node, tools=[pay])


@pytest.fixture
def ask(stage: Fleet, tools: Toolbox) -> Callable[..., Approval]:
    def asked(gate: Gate, **more: Any) -> Approval:
        stage.start(buying(tools, gate, **more))
        assert stage.drive() == "parked"
        return now()

    return asked


def now() -> Approval:
    return Approval.objects.get(state="open")


def say(by: Actor, verdict: str = "approve", *, of: Approval | None = None, **more: Any) -> Approval:
    question = of or now()
    role = LEGAL if question.queue == "legal" else FINANCE
    given = {"plan_hash": question.plan_hash, "justification": "as quoted"} | more
    return decide(question.id, verdict=verdict, by=replace(by, role=role), **given)


def people() -> tuple[Actor, Actor, Actor]:
    return somebody("lena", LEGAL), somebody("fiona", FINANCE), somebody("frank", FINANCE)


def nothing_changes(act: Callable[[], Any], error: type[DurableAgentsError], words: str | None = None) -> None:
    before = dump()
    with pytest.raises(error, match=words):
        act()
    assert dump() == before


def test_a_quorum_of_three_takes_three_people(stage: Fleet, ask: Callable[..., Approval], outside: Outside) -> None:
    question = ask(Gate("finance_po", "large sums", quorum=3))
    for name in ("fiona", "frank"):
        answer = say(somebody(name, FINANCE))
        assert (answer.state, answer.id) == ("open", question.id), f"the yes of {name} is counted, and is not the last"
        assert stage.drive() == "idle" and outside.requests == []
    assert say(somebody("felix", FINANCE)).state == "approved"
    assert stage.drive() == "completed" and len(outside.requests) == 1
    assert [d.closes for d in Decision.objects.order_by("id")] == [False, False, True]
    check_against_journal(question.run)


def test_after_legal_two_of_finance_approve(stage: Fleet, ask: Callable[..., Approval], outside: Outside) -> None:
    first, (lena, fiona, frank) = ask(LEGAL_THEN_TWO), people()
    assert (first.queue, first.case_id) == ("legal", first.id)
    say(lena)
    assert stage.drive() == "parked" and outside.requests == []
    second = now()
    assert (second.queue, second.case_id, second.revision) == ("finance_po", first.id, 1)
    say(fiona)
    assert stage.drive() == "idle" and now() == second and outside.requests == []
    say(frank)
    assert stage.drive() == "completed" and len(outside.requests) == 1
    assert [(d.by, d.verdict, d.closes) for d in Decision.objects.order_by("id")] == [
        ("user:lena", "approve", True),
        ("user:fiona", "approve", False),
        ("user:frank", "approve", True),
    ]
    assert [(x.by, x.person) for x in events(first.run, e.ApprovalVoted)] == [
        ("user:lena", lena.person),
        ("user:fiona", fiona.person),
        ("user:frank", frank.person),
    ]
    check_against_journal(first.run)


@pytest.mark.parametrize("gate", [ONE, TWO, LEGAL_THEN_TWO])
def test_letting_it_fail_fails_it(stage: Fleet, ask: Callable[..., Approval], outside: Outside, gate: Gate) -> None:
    question, (lena, fiona, _) = ask(gate, tries=2), people()
    say(lena if gate is LEGAL_THEN_TWO else fiona, "fail", justification="not with this vendor")
    assert stage.drive() == "failed" and outside.requests == [] and Approval.objects.count() == 1
    (failed,) = events(question.run, e.RunFailed)
    assert failed.code == "rejected" and "not with this vendor" in failed.payload["message"]
    assert Approval.objects.get().state == "rejected" and Decision.objects.get().verdict == "fail"
    check_against_journal(question.run)


@pytest.mark.parametrize("at", ["legal", "finance_po"])
def test_a_no_at_any_stage_comes_to_the_node_and_a_revision_begins_at_the_first(
    stage: Fleet, ask: Callable[..., Approval], outside: Outside, at: str
) -> None:
    first, (lena, fiona, frank) = ask(LEGAL_THEN_TWO, tries=2), people()
    if at == "finance_po":
        say(lena)
        stage.drive()
        say(fiona)
    say(lena if at == "legal" else frank, "reject", justification="too dear")
    assert stage.drive() == "parked"
    again = now()
    assert (again.queue, again.revision, again.previous_id, again.case_id) == ("legal", 2, first.id, again.id)
    say(lena)
    stage.drive()
    assert now().revision == (2 if at == "finance_po" else 1)
    say(fiona)
    say(frank)
    assert stage.drive() == "completed" and len(outside.requests) == 1
    check_against_journal(first.run)


@pytest.mark.parametrize("gate", [ONE, TWO])
def test_who_abstains_has_had_their_say(stage: Fleet, ask: Callable[..., Approval], gate: Gate) -> None:
    question, (_, fiona, frank) = ask(gate), people()
    greta = somebody("greta", FINANCE)
    assert say(fiona, "abstain").state == "open" and stage.drive() == "idle"
    for verdict in ("approve", "reject", "fail", "abstain"):
        nothing_changes(partial(say, fiona, verdict), AlreadyVoted, "You abstained from this")
    say(frank)
    if gate is TWO:
        say(greta)
    assert stage.drive() == "completed"
    check_against_journal(question.run)


def test_a_deadline_denies_whatever_was_said_before(stage: Fleet, ask: Callable[..., Approval]) -> None:
    from runs.workers import timers

    question, (_, fiona, _) = ask(TWO), people()
    say(fiona)
    make_late(question)
    timers.sweep()
    assert stage.drive() == "failed" and Approval.objects.get().state == "expired"


def test_one_person_has_one_word_by_whatever_key(ask: Callable[..., Approval]) -> None:
    ask(TWO)
    _, fiona, _ = people()
    say(fiona)
    for by in (fiona, replace(fiona, kind="key", name="laptop"), replace(fiona, kind="key", name="server")):
        for verdict in ("approve", "reject", "abstain"):
            nothing_changes(partial(say, by, verdict), AlreadyVoted, "Each person has one vote")


def test_part_in_two_stages_is_refused_where_the_seats_are_gone(stage: Fleet, ask: Callable[..., Approval]) -> None:
    ask(LEGAL_THEN_TWO)
    both, fiona = somebody("both", LEGAL, FINANCE), somebody("fiona", FINANCE)
    say(both)
    stage.drive()
    tamper("DELETE FROM approvals_seat")
    say(fiona)
    nothing_changes(lambda: say(both), NotCounted, "voted or decided twice")


def test_nobody_without_an_account_is_one_of_several(ask: Callable[..., Approval]) -> None:
    ask(TWO)
    nothing_changes(lambda: say(Actor("user", "ghost", auth="session")), Forbidden, "account")


def test_who_changed_who_decides_after_it_was_asked_does_not_decide(ask: Callable[..., Approval]) -> None:
    admin = somebody("ada", FINANCE, is_superuser=True, is_staff=True)
    limited(admin, "100")  # set before the rule exists
    question = ask(TWO)
    limited(admin, None, person="ada")
    nothing_changes(lambda: say(admin), Forbidden, "You changed the members of this role")
    assert question.run.approvals.count() == 1


def test_a_stage_that_is_not_the_one_that_was_read_is_refused(stage: Fleet, ask: Callable[..., Approval]) -> None:
    first, (lena, fiona, _) = ask(LEGAL_THEN_TWO), people()
    nothing_changes(lambda: say(lena, stage=2), OtherStage)
    say(lena, stage=1)
    stage.drive()
    nothing_changes(lambda: say(fiona, stage=1), OtherStage)
    nothing_changes(lambda: say(fiona, plan_hash=first.plan_hash), StalePlan)
    nothing_changes(lambda: say(lena, of=first), AlreadyDecided)
    say(fiona, stage=2)


def forged(approval: Approval, somebody: Actor, **changed: Any) -> Decision:
    """Insert an approval by this person with the application's database rights."""
    fields = {
        "approval": approval,
        "verdict": "approve",
        "plan_hash": approval.plan_hash,
        "justification": "so",
        "by": somebody.ref,
        "person": somebody.person,
        "role": FINANCE,
        "auth": "session",
        "at": approval.opened_at,
        "closes": False,
    }
    return Decision.objects.create(**(fields | changed))


def vote_of(approval: Approval, by: Actor) -> e.ApprovalVoted:
    wait = Wait.objects.get(pk=approval.wait_id)
    return e.ApprovalVoted(
        slot=wait.slot,
        n=wait.n,
        approval_id=str(approval.id),
        verdict="approve",
        plan_hash=approval.plan_hash,
        by=by.ref,
        role=FINANCE,
        person=by.person or 0,
        payload={"justification": "so"},
    )


def test_a_forged_decision_completes_nothing(ask: Callable[..., Approval], stage: Fleet) -> None:
    question, (_, fiona, frank) = ask(TWO), people()
    forged(question, fiona)
    assert say(frank).state == "open" and stage.drive() == "idle"
    assert any("no event" in problem for problem in problems(question.run))


def test_a_vote_without_its_decision_completes_nothing(ask: Callable[..., Approval], stage: Fleet) -> None:
    """It is in the journal with our key, but nobody decided it."""
    question, (_, fiona, frank) = ask(TWO), people()
    append(question.run_id, vote_of(question, fiona), by=fiona)
    nothing_changes(lambda: say(frank), NotCounted, "did not write")
    forged(question, fiona)
    nothing_changes(lambda: say(frank), NotCounted, "did not write")
    assert any("vote of user:fiona" in problem or "no code" in problem for problem in problems(question.run))


def test_a_forged_vote_stops_the_case_and_the_run(ask: Callable[..., Approval], stage: Fleet, outside: Outside) -> None:
    question, (_, fiona, frank) = ask(TWO), people()
    append(question.run_id, vote_of(question, fiona), by=fiona)
    tamper("UPDATE ledger_event SET code = NULL WHERE kind = 'ApprovalVoted'")
    nothing_changes(lambda: say(frank), NotCounted, "code")
    assert outside.requests == []


def test_a_row_that_says_that_one_yes_is_enough_is_not_believed(ask: Callable[..., Approval]) -> None:
    question, (_, fiona, _) = ask(TWO), people()
    tamper("UPDATE approvals_approval SET case_id = NULL")
    nothing_changes(lambda: say(fiona, of=question), StalePlan)


def test_the_database_keeps_what_a_question_is_a_stage_of(ask: Callable[..., Approval]) -> None:
    question = ask(TWO)
    with pytest.raises(Error, match="case_is_frozen"), transaction.atomic():
        Approval.objects.filter(pk=question.pk).update(case_id=None)


def test_the_database_gives_nobody_two_seats(ask: Callable[..., Approval], stage: Fleet) -> None:
    first, (lena, fiona, frank) = ask(LEGAL_THEN_TWO), people()
    say(lena)
    stage.drive()
    second = now()
    say(fiona)
    in_place = {"deputy_of": {"name": "x", "person": fiona.person, "deputy": 1}}
    tries: list[tuple[Actor, dict[str, Any]]] = [
        (fiona, {}),
        (fiona, {"by": "key:laptop"}),
        (frank, {"standing": in_place}),
        (lena, {}),
        (frank, {"standing": {"deputy_of": {"name": "x", "person": lena.person, "deputy": 1}}}),
    ]
    for by, changed in tries:
        with pytest.raises(IntegrityError, match="approvals_seat_one_each"), transaction.atomic():
            forged(second, by, **changed)
    assert {seat.case_id for seat in Seat.objects.all()} == {first.id}
    with pytest.raises(Error, match="Cannot update or delete"), transaction.atomic():
        Seat.objects.all().delete()


def test_a_vote_that_was_taken_away_is_missed(ask: Callable[..., Approval]) -> None:
    question, (_, fiona, _) = ask(TWO), people()
    say(fiona)
    tamper("DELETE FROM approvals_seat")
    assert any("the person who voted" in problem for problem in problems(question.run))
    tamper("DELETE FROM approvals_decision")
    assert any("vote of user:fiona" in problem for problem in problems(question.run))


def test_a_vote_that_was_changed_is_found(ask: Callable[..., Approval]) -> None:
    question, (_, fiona, _) = ask(TWO), people()
    say(fiona, "abstain")
    tamper("UPDATE approvals_decision SET verdict = 'approve'")
    assert any("verdict" in problem for problem in problems(question.run))


@pytest.mark.django_db(transaction=True)
def test_64_at_once_are_counted_once(ask: Callable[..., Approval], stage: Fleet, outside: Outside) -> None:
    """32 people, each twice at once: two approvals let it through, and everybody else is told who decided."""
    question = ask(TWO)
    crowd = [somebody(f"p{n}", FINANCE) for n in range(32)]
    items: list[str] = []

    def one(by: Actor) -> None:
        try:
            while True:
                with suppress(OperationalError):  # on a busy machine a lock timeout is retried
                    say(by, of=question)
                    return items.append("done")
        except (AlreadyDecided, AlreadyVoted) as error:
            items.append(error.detail)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(64) as pool:
        for each in [pool.submit(one, by) for by in crowd for _ in range(2)]:
            each.result()
    assert items.count("done") == 2 and len(items) == 64
    assert all("approved by user:p" in words or "You approved this at" in words for words in items if words != "done")
    votes = events(question.run, e.ApprovalVoted)
    assert len({vote.person for vote in votes}) == len(votes) == 2 and len(events(question.run, e.ApprovalDecided)) == 1
    assert stage.drive() == "completed" and len(outside.requests) == 1
    check_against_journal(question.run)


@pytest.mark.parametrize("losing", ["role", "limit", "account"])
def test_what_was_lost_between_two_words_counts(ask: Callable[..., Approval], losing: str) -> None:
    ask(Gate("finance_po", "large sums", quorum=2, amount="amount USD"))
    _, fiona, frank = people()
    say(fiona)
    user = User.objects.get(username="frank")
    if losing == "role":
        user.groups.remove(Group.objects.get(name=FINANCE))
    elif losing == "limit":
        acts.limit("finance_po", LimitBody(person="frank", most="1", justification=WHY), by=boss())  # type: ignore[arg-type]
    else:
        user.is_active = False
        user.save()
    nothing_changes(lambda: say(frank), Forbidden)


def reads(name: str) -> Reader:
    return Reader(User.objects.get(username=name))


def calls(name: str) -> Api:
    return Api(issue_key(User.objects.get(username=name), "test"))


def decides(reader: Reader, approval: Approval, verdict: str, **more: Any) -> Any:
    form = {"verdict": verdict, "plan_hash": approval.plan_hash, "justification": f"{verdict} as quoted"} | more
    return reader.client.post(f"/approvals/{approval.id}/decision", form, follow=True)


def four_people() -> list[Actor]:
    named = (("lena", LEGAL), ("fiona", FINANCE), ("frank", FINANCE), ("greta", FINANCE))
    return [somebody(name, role) for name, role in named]


def test_the_page_says_who_decides_and_what_ones_own_yes_does(stage: Fleet, ask: Callable[..., Approval]) -> None:
    first, _ = ask(LEGAL_THEN_TWO, tries=2), four_people()
    page = reads("lena").read(f"/inbox/{first.id}")
    for words in (
        "Approvers",
        "0 of 1 approved",
        "yours would be the first approval",
        "finance_po next 0 of 2 approved",
        "Nothing is sent yet: finance_po decides next",
        "Fail the run",
        "Abstain",
    ):
        assert words in page, (words, page)
    text = text_of(decides(reads("lena"), first, "approve", stage="1"))
    assert "Approved. finance_po decides next." in text and "lena approved" in text
    stage.drive()
    assert "Follows as a separate case" in reads("lena").read(f"/inbox/{first.id}")
    second = now()
    page = reads("fiona").read(f"/inbox/{second.id}")
    for words in (
        "legal done",
        "1 of 1 approved",
        "user:lena approved",
        "“approve as quoted”",
        "0 of 2 approved",
        "Nothing is sent yet: 1 more approval is needed",
        "2 people must approve, each a finance approver",
    ):
        assert words in page, (words, page)
    assert "stage 2 of 2: 0 of 2 approved" in reads("fiona").read("/inbox")
    text = text_of(decides(reads("fiona"), second, "approve", stage="2"))
    assert "Your approval is recorded. More approvals are needed" in text and "You approved this at" in text
    page = reads("frank").read(f"/inbox/{second.id}")
    assert "1 of 2 approved: yours would be the second approval" in page and "sent once" in page
    assert "stage 2 of 2: 1 of 2 approved; you voted" in reads("fiona").read("/inbox")
    page = reads("frank").read("/inbox")
    assert "stage 2 of 2: 1 of 2 approved" in page and "you voted" not in page
    assert "Approved. The run continues." in text_of(decides(reads("frank"), second, "approve"))
    page = reads("greta").read(f"/inbox/{second.id}")
    assert "2 of 2 approved" in page and "finance_po done" in page
    assert "finance_po done 2 of 2 approved" in reads("lena").read(f"/inbox/{first.id}")
    assert "user:fiona approved" in reads("lena").read(f"/inbox/{first.id}"), "the first approver sees the result"
    assert stage.drive() == "completed"


def test_who_had_their_say_is_told_so_and_what_they_typed_is_kept(ask: Callable[..., Approval]) -> None:
    question, _ = ask(TWO, tries=2), four_people()
    decides(reads("fiona"), question, "approve")
    answer = decides(reads("fiona"), question, "reject", justification="I have thought again about it")
    page = text_of(answer)
    assert answer.status_code == 409 and "Already voted" in page and "I have thought again about it" in page
    answer = decides(reads("frank"), question, "approve", stage="2", justification="My careful reasons")
    page = text_of(answer)
    assert answer.status_code == 409 and "Wrong stage" in page and "My careful reasons" in page
    for wrong in ("0", "-1", "x", "1" * 30):
        assert decides(reads("frank"), question, "approve", stage=wrong).status_code == 422
    assert Decision.objects.count() == 1


def test_over_http_a_stage_is_read_and_decided(stage: Fleet, ask: Callable[..., Approval]) -> None:
    first, _ = ask(LEGAL_THEN_TWO, tries=2), four_people()
    lena, fiona, frank = calls("lena"), calls("fiona"), calls("frank")
    row = lena.get(f"approvals/{first.id}").json()
    assert row["stage"] == 1 and [(s["queue"], s["quorum"], s["state"], s["yes"]) for s in row["stages"]] == [
        ("legal", 1, "now", 0),
        ("finance_po", 2, "next", 0),
    ]
    body = {"verdict": "approve", "plan_hash": row["plan_hash"], "justification": "as quoted"}
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body | {"stage": 2}), 409, "other-stage")
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body | {"stage": 0}), 422)
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body | {"verdict": "maybe"}), 422)
    done = lena.post(f"approvals/{first.id}/decision", body | {"stage": 1}).json()
    assert (done["state"], done["stage"]) == ("approved", 1)
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body), 409, "already-decided")
    assert lena.get(f"approvals/{first.id}").json()["stage"] == 1
    stage.drive()
    second = now()
    assert lena.get(f"approvals/{first.id}").json()["stage"] == 1, "while the next one is being decided"
    body["plan_hash"] = second.plan_hash
    assert fiona.post(f"approvals/{second.id}/decision", body).json()["state"] == "open"
    assert is_problem(fiona.post(f"approvals/{second.id}/decision", body | {"verdict": "reject"}), 409, "already-voted")
    (listed,) = fiona.get("approvals?state=open").json()["results"]
    assert listed["stage"] == 2 and listed["decision"] is None and listed["stages"][1]["yes"] == 1
    assert [(v["by"], v["verdict"]) for s in listed["stages"] for v in s["votes"]] == [
        ("key:lena", "approve"),
        ("key:fiona", "approve"),
    ]
    done = frank.post(f"approvals/{second.id}/decision", body).json()
    assert (done["state"], done["stage"]) == ("approved", 2)
    assert stage.drive() == "completed"
    assert [lena.get(f"approvals/{each.id}").json()["stage"] for each in (first, second)] == [1, 2]


def test_a_forged_vote_is_shown_as_none_and_counts_for_nothing(ask: Callable[..., Approval]) -> None:
    question = ask(TWO, tries=2)
    fiona, frank = somebody("fiona", FINANCE), somebody("frank", FINANCE)
    forged(question, fiona)
    page = reads("frank").read(f"/inbox/{question.id}")
    assert "not authentic" in page and "0 of 2 approved" in page
    say(frank)
    assert Approval.objects.get().state == "open"
