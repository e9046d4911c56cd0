from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from approvals.policy import (
    VERDICTS,
    Authority,
    Cap,
    Deputyship,
    Facts,
    Member,
    No,
    QuestionAmount,
    QueueFacts,
    Sum,
    judge,
)
from ledger.web.roles import ROLES
from tests.cases import each_case

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LEGAL = QueueFacts("legal", "approver_legal")
ANN = Member("ann", 1, frozenset({"approver_legal"}))
BOB = Member("bob", 2, frozenset({"operator"}))


def usd(value: str) -> Sum:
    return Sum(Decimal(value), "USD")


def may(
    who: Member,
    queue: QueueFacts | None = LEGAL,
    *deputyships: Deputyship,
    amount: Sum | str | None = None,
    approves: bool = True,
) -> Authority | No:
    return judge(Facts(queue, "legal", who, NOW, deputyships, QuestionAmount(amount)), approves=approves)


def why_not(*args: object, **more: object) -> str:
    found = may(*args, **more)  # type: ignore[arg-type]
    assert isinstance(found, No)
    return found.why


def standing_in(principal: Member = ANN, **more: object) -> Deputyship:
    return replace(Deputyship(7, principal, NOW - DAY, NOW + DAY), **more)  # type: ignore[arg-type]


@each_case("role", [*ROLES, "superuser", "", "admin"])
def test_only_the_queues_own_role_decides(role: str) -> None:
    assert isinstance(may(Member("x", 3, frozenset({role}))), Authority) is (role == "approver_legal")


@given(st.lists(st.text() | st.sampled_from(ROLES)))
def test_a_queue_that_is_not_there_is_decided_by_nobody(roles: list[str]) -> None:
    assert isinstance(may(Member("x", 3, frozenset(roles)), None), No)
    assert isinstance(may(Member("x", 3, frozenset(roles)), replace(LEGAL, is_removed=True)), No)


@given(st.frozensets(st.text() | st.sampled_from(ROLES)))
def test_more_roles_never_take_a_right_away(roles: frozenset[str]) -> None:
    assert may(Member("x", 3, roles | {"approver_legal"})) == may(ANN)


def test_why_not_is_said_in_words() -> None:
    capped = replace(LEGAL, cap=Cap(usd("50000")))
    assert why_not(BOB) == "Only approver_legal decides in legal."
    assert "closed to decisions: an administrator has to open it" in why_not(ANN, replace(LEGAL, is_open=False))
    assert why_not(BOB, replace(LEGAL, is_open=False)) == "Only approver_legal decides in legal."
    assert "$60,000 is above your limit of $50,000 in legal" in why_not(ANN, capped, amount=usd("60000.00"))
    assert "changed outside the application" in why_not(ANN, replace(LEGAL, is_authentic=False))
    assert why_not(replace(ANN, is_active=False)) == "Your account is closed."
    assert why_not(replace(ANN, own_act="started this run")).startswith("You started this run, so someone else")
    ended = standing_in(ends_at=NOW)
    assert why_not(BOB, LEGAL, ended) == "Your deputyship for ann ended at 2026-11-23 12:00 UTC."
    assert "starts at 2026-11-24 12:00 UTC" in why_not(BOB, LEGAL, standing_in(starts_at=NOW + DAY))
    assert "it was revoked" in why_not(BOB, LEGAL, standing_in(is_revoked=True))
    assert "is not authentic" in why_not(BOB, LEGAL, standing_in(is_authentic=False))
    elsewhere = replace(ANN, roles=frozenset({"approver_finance"}))
    for over in ({"is_revoked": True}, {"ends_at": NOW}, {"starts_at": NOW + DAY}):
        assert why_not(BOB, LEGAL, standing_in(elsewhere, **over)) == "Only approver_legal decides in legal.", over
    assert "ann, whose deputy you are, can't decide in legal" in why_not(BOB, LEGAL, standing_in(elsewhere))
    did = standing_in(replace(ANN, own_act="started this run"))
    assert why_not(BOB, LEGAL, did) == "ann, whose deputy you are, started this run, so someone else has to decide."


@each_case(
    ("amount", "is_within"),
    [
        (usd("50000"), True),
        (usd("50000.000001"), False),
        (usd("0"), True),
        (usd("-50000"), True),
        (usd("-50001"), False),
        (Sum(Decimal(1), "EUR"), False),
        ("the field is gone", False),
        (None, True),
    ],
)
def test_a_limit_is_the_most_and_what_can_not_be_judged_is_above_it(amount: Sum | str | None, is_within: bool) -> None:
    capped = replace(LEGAL, cap=Cap(usd("50000")))
    assert isinstance(may(ANN, capped, amount=amount), Authority) is is_within
    assert isinstance(may(ANN, LEGAL, amount=amount), Authority), "who has no limit decides whatever it is"
    assert isinstance(may(ANN, capped, amount=amount, approves=False), Authority), "to say no needs no limit"


def test_a_queue_may_need_an_amount_and_ones_own_limit_goes_before_the_roles() -> None:
    needs = replace(LEGAL, needs_amount=True, cap=Cap(usd("10")))
    assert "has no amount" in why_not(ANN, needs)
    free = replace(ANN, cap=Cap(None, "person"))
    assert isinstance(may(free, needs), Authority) and isinstance(may(free, needs, amount=usd("11")), Authority)
    assert isinstance(may(replace(ANN, cap=Cap(usd("5"), "person")), needs, amount=usd("6")), No)
    forged = Cap(None, "person", is_authentic=False)
    assert "not authentic" in why_not(replace(ANN, cap=forged), needs, amount=usd("1"))


def test_a_deputy_decides_under_the_principals_limit_and_under_their_own() -> None:
    ann = replace(ANN, cap=Cap(usd("100"), "person"))
    found = may(BOB, LEGAL, standing_in(ann), amount=usd("100"))
    assert isinstance(found, Authority) and found.deputyship is not None and found.role == "approver_legal"
    assert "above the limit of ann of $100" in why_not(BOB, LEGAL, standing_in(ann), amount=usd("101"))
    bob = replace(BOB, cap=Cap(usd("10"), "person"))
    assert "above your own limit of $10" in why_not(bob, LEGAL, standing_in(ann), amount=usd("11"))


def test_a_deputy_of_a_deputy_is_none_and_nobody_stands_in_for_themselves() -> None:
    assert "can't decide in legal" in why_not(Member("cy", 3), LEGAL, standing_in(BOB))
    assert "can't decide in legal" in why_not(BOB, LEGAL, standing_in(replace(ANN, is_active=False)))
    assert why_not(replace(ANN, roles=frozenset()), LEGAL, standing_in(ANN)) == "Nobody can be their own deputy."


def test_what_a_deputy_took_part_in_they_decide_for_nobody() -> None:
    assert "You retried this run" in why_not(replace(BOB, own_act="retried this run"), LEGAL, standing_in())


def test_ones_own_role_is_not_taken_away_by_whom_one_stands_in_for() -> None:
    """Otherwise naming a deputy would keep that person from deciding what the principal started."""
    other = standing_in(replace(ANN, own_act="started this run"))
    member = Member("cy", 3, frozenset({"approver_legal"}))
    found = may(member, LEGAL, other)
    assert isinstance(found, Authority) and found.deputyship is None


def test_of_several_places_the_first_that_suffices_counts() -> None:
    low, high = replace(ANN, cap=Cap(usd("1"))), Member("di", 4, ANN.roles, cap=Cap(usd("99")))
    found = may(BOB, LEGAL, standing_in(low), standing_in(high, id=8), amount=usd("50"))
    assert isinstance(found, Authority) and found.deputyship is not None and found.deputyship.id == 8


def test_there_are_three_verdicts() -> None:
    assert VERDICTS == {"approve": "approved", "reject": "rejected", "fail": "rejected"}


@each_case(
    ("value", "words"),
    [
        ("5", "$5"),
        ("5.00", "$5"),
        ("5.1", "$5.10"),
        ("1234.56", "$1,234.56"),
        ("0.125", "$0.125"),
        ("0.000000", "$0"),
        ("-12.5", "$-12.50"),
        ("1E+3", "$1,000"),
        ("1E+28", f"$10{',000' * 9}"),
        ("NaN", "$NaN"),
        ("Infinity", "$Infinity"),
    ],
)
def test_a_sum_of_any_size_has_words(value: str, words: str) -> None:
    assert str(Sum(Decimal(value), "USD")) == words


def test_one_person_has_one_word_in_a_case() -> None:
    found = may(replace(ANN, said="approved it"))
    assert isinstance(found, No) and found.has_voted and found.why.startswith("You approved it.")
