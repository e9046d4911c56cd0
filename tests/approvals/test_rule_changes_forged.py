"""Changes of rules that somebody wrote past us, with the application's rights in the database: nothing is read from
them, no page stops by them, and however many there are, rules can be changed."""

from __future__ import annotations

import json
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.changes import listed
from approvals.policies import acts as policies
from durableagents.databases import RUNTIME_ROLE
from durableagents.identity import invitations
from durableagents.models import Invitation
from ledger.actors import Actor
from ledger.four_eyes import changes
from ledger.four_eyes.verification import every_change
from ledger.models import RuleChange
from tests.approvals.setup import WHY
from tests.approvals.test_damaged import HUGE, NEVER
from tests.approvals.test_rule_changes import anna, bert, guarded, proposed, rule
from tests.console.accounts import chosen, invite
from tests.console.conftest import text_of
from tests.scale.test_reads import MOST_STATEMENTS

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert", "guarded"]  # fixtures
EVIL = "<b>trust me</b> \u202e"
TOLD = [{"action": "policy", "subject": EVIL, "queue": "", "before": {}, "after": {"rule": EVIL}}]
DEEP = "[" * 4000 + "]" * 4000
# What none of our processes would write: no list, no records, texts and numbers in the place of others, unreadable.
SHAPES = (
    "5",
    '"5"',
    "null",
    "{}",
    '["x"]',
    "[5]",
    "[{}]",
    "[null]",
    HUGE,
    DEEP,
    json.dumps([{**TOLD[0], "before": 5, "after": "x"}]),
    json.dumps([{**TOLD[0], "action": {}, "subject": []}]),
)
READS = ("/changes", "/api/v1/changes", "/api/v1/changes?state=open", "/policies")


def forge(
    *,
    told: str = json.dumps(TOLD),
    given: str = "{}",
    state: str = "open",
    made_at: str = "now",
    person: int = 1,
    act: str = "approvals.policies.acts.create",
    ended_at: str | None = None,
    code: bytes | None = None,
) -> UUID:
    number = uuid4()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {RUNTIME_ROLE}")
        cursor.execute(
            "INSERT INTO ledger_rulechange (id, family, act, given, told, why, by, person, role, auth, address,"
            " made_at, state, ended_by, ended_at, ended_why, code) VALUES (%s, 'policies', %s, %s, %s, %s,"
            " 'user:anna', %s, '', '', '', %s, %s, 'user:bert', %s, %s, %s)",
            [number, act, given, told, EVIL, person, made_at, state, ended_at, EVIL, code],
        )
        cursor.execute("RESET ROLE")
    return number


def client_of(by: Actor) -> Client:
    found = Client()
    found.force_login(User.objects.get(pk=by.person))
    return found


def read(client: Client, *more: UUID) -> list[str]:
    """All that is told of changes, each page and answer as text."""
    told = []
    for path in (*READS, *(f"{where}/{number}" for number in more for where in ("/changes", "/api/v1/changes"))):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        told.append(answer.content.decode())
    return told


@pytest.mark.parametrize("name", ["told", "given"])
def test_a_shapeless_row_takes_no_page_away(guarded: None, anna: Actor, bert: Actor, name: str) -> None:
    change = proposed(lambda: policies.create(rule(), by=anna))
    numbers = [forge(**{name: shape}) for shape in SHAPES]
    numbers += [forge(state=state, ended_at="now") for state in ("applied", "refused", "wished", "")]
    numbers += [forge(made_at=never, ended_at=never) for never in NEVER]
    numbers += [forge(act=act, code=bytes(33)) for act in ("", "nothing", EVIL)]
    for page in read(client_of(bert), *numbers):
        assert "trust me" not in page and "\u202e" not in page, "nothing is told of what is not genuine"
    assert str(change.pk) in read(client_of(bert))[0]
    found = every_change()
    assert found is not None and f"change {numbers[0]} was not written by this installation" in found.problems


def test_nobody_does_anything_with_a_forged_row_and_none_becomes_genuine_by_being_ended(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    number = forge(person=anna.person or 0)
    for verb, by in ((changes.apply, bert), (changes.refuse, bert), (changes.withdraw, anna)):
        with pytest.raises(changes.ChangeOver, match="not put on record"):
            verb(number, by=by, justification=WHY)
    ended = forge(state="refused", ended_at="now")
    with pytest.raises(changes.ChangeOver, match="not put on record") as refused:
        changes.refuse(ended, by=bert, justification=WHY)
    assert "trust me" not in str(refused.value)
    assert [changes.find(each).is_genuine for each in (number, ended)] == [False, False]
    page = client_of(bert).get(f"/changes/{number}").content.decode()
    assert "Not genuine" in page and "Refuse it" not in page and "Put it in force" not in page
    told = client_of(bert).get(f"/api/v1/changes/{number}").json()
    assert (told["told"], told["why"], told["by"], told["is_genuine"], told["may_agree"]) == ([], "", "", False, False)


def test_however_many_are_forged_rules_are_changed_and_what_waits_is_on_top(
    guarded: None, anna: Actor, bert: Actor
) -> None:
    first = proposed(lambda: policies.create(rule(), by=anna))
    over = proposed(lambda: policies.create(rule(name="over"), by=anna))
    changes.refuse(over.pk, by=bert, justification="no")
    for _ in range(changes.MOST_OPEN + 10):
        forge()
        forge(state="applied", ended_at="now")
    for _ in range(5):
        forge(made_at="2100-01-01")
    forge(told="5", made_at="infinity")
    later = proposed(lambda: policies.create(rule(name="later"), by=anna))
    with CaptureQueriesContext(connection) as asked:
        shown = listed.newest(User.objects.get(pk=bert.person))
    assert len(asked) <= MOST_STATEMENTS
    assert [each.row.pk for each in shown[:3]] == [later.pk, first.pk, over.pk]
    assert [each.is_genuine for each in shown[3:]] == [False] * listed.PAGE
    client = client_of(bert)
    assert str(first.pk) in read(client)[0]
    (open_ones,) = [client.get("/api/v1/changes?state=open").json()["results"]]
    assert [each["id"] for each in open_ones[:2]] == [str(later.pk), str(first.pk)]
    assert changes.apply(first.pk, by=bert, justification=WHY).state == "applied"


def test_no_more_rows_are_read_than_a_few_of_each_kind_however_many_there_are(
    guarded: None, anna: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is between them is found as far as it is read, and rules can be changed whatever is found."""
    monkeypatch.setattr(changes, "MOST_READ", 20)
    monkeypatch.setattr(changes, "MOST_OPEN", 10)
    proposed(lambda: policies.create(rule(), by=anna))
    for n in range(80):
        forge(made_at="now" if n % 4 else "2100-01-01")
    looked_at: list[int] = []
    is_genuine = RuleChange.is_genuine.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(RuleChange, "is_genuine", property(lambda row: (looked_at.append(row.pk), is_genuine(row))[1]))
    proposed(lambda: policies.create(rule(name="later"), by=anna))
    assert len(set(looked_at)) <= 20 + 10 + 1


def test_genuine_ones_still_count_to_the_most(guarded: None, anna: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_OPEN", 3)
    for n in range(3):
        forge()
        proposed(partial(policies.create, rule(name=f"n{n}"), by=anna))
    with pytest.raises(changes.TooManyOpen):
        policies.create(rule(name="one_more"), by=anna)
    changes.withdraw(RuleChange.objects.filter(why=WHY).latest("made_at").pk, by=anna, justification=WHY)
    proposed(lambda: policies.create(rule(name="one_more"), by=anna))


# --- invitations ---


@pytest.mark.parametrize("roles", ["5", '"operator"', "null", "{}", "[5]", '[["operator"]]', HUGE, DEEP])
def test_an_invitation_whose_roles_nobody_can_read_gives_nothing_and_takes_no_page_away(
    anna: Actor, roles: str
) -> None:
    row, path = invite("ada")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE durableagents_invitation SET roles = %s WHERE id = %s", [roles, row.pk])
    page = client_of(anna).get("/people")
    assert page.status_code == 200 and "ada@example.org" in text_of(page)
    for answer in (Client().get(path), Client().post(path, chosen())):
        assert answer.status_code == 404
    assert not User.objects.filter(username="ada").exists()
    assert invitations.roles_of(Invitation.objects.get(pk=row.pk)) is None
