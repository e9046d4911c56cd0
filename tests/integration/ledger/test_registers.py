from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import Error, connection, transaction

from durableagents.identity.auth import issue_key, revoke
from durableagents.models import ApiKey
from ledger.actors import Actor
from ledger.append import acted
from ledger.models import AccountRecord, ActRecord, Register
from ledger.verification.registers import LISTS, Listed, verify_registers
from tests.cases import each_case
from tests.conftest import CHECKOUT, free_ports, plain_env
from tests.tampering import run_sql, tamper

pytestmark = [pytest.mark.django_db, pytest.mark.every(4)]
OPS = Actor("os", "ops", role="operator", auth="shell")


def declare(host: str) -> None:
    acted("declare_dead", by=OPS, subject=host, justification="its power supply burnt", after={"end_cause": "operator"})


def problems() -> dict[str, list[str]]:
    lists = {each.name for each in LISTS}
    return {each.name: each.problems for each in verify_registers() if each.problems and each.name in lists}


@pytest.fixture(autouse=True)
def record(db: None) -> None:
    tamper("DELETE FROM ledger_actrecord; DELETE FROM ledger_accountrecord; DELETE FROM ledger_register")
    for host in ("a.example", "b.example", "c.example", "d.example"):
        declare(host)
    ada = User.objects.create_user("ada", password="a long one for her")
    ada.groups.add(Group.objects.get_or_create(name="operator")[0])
    ada.groups.clear()
    User.objects.create_user("bob")
    assert [each for each in verify_registers() if each.problems] == []


def of(name: str) -> Listed:
    return next(each for each in verify_registers() if each.name == name)


def test_both_lists_are_numbered_from_one_and_end_where_they_should() -> None:
    for model, each in zip((ActRecord, AccountRecord), verify_registers(), strict=False):
        numbers = list(model.objects.order_by("id").values_list("n", flat=True))  # type: ignore[attr-defined]
        assert numbers == list(range(1, each.records + 1)) and each.records >= 4
        assert (Register.objects.get(pk=each.name).n, Register.objects.get(pk=each.name).chain.hex()) == (
            each.records,
            each.hash,
        )


@pytest.mark.parametrize("each", LISTS, ids=lambda each: each.name)
@pytest.mark.parametrize("which", ["min", "max"])
def test_a_record_taken_away_is_missed(each: Any, which: str) -> None:
    tamper(f"DELETE FROM {each.table} WHERE n = (SELECT {which}(n) FROM {each.table})")
    assert list(problems()) == [each.name]


def test_taking_one_away_closing_the_gap_and_linking_again_is_found_by_the_codes() -> None:
    """The superuser recomputes everything that needs no key."""
    tamper("DELETE FROM ledger_actrecord WHERE n = 2")
    tamper("UPDATE ledger_actrecord SET n = n - 1 WHERE n > 2")
    again = """
        UPDATE ledger_actrecord t SET prev_hash = p.hash, hash = ledger_link(p.hash, t.n, ledger_act_body(t))
        FROM ledger_actrecord p WHERE p.n = t.n - 1 AND t.n = %s"""
    tamper(again, 2), tamper(again, 3)
    tamper(
        "UPDATE ledger_register SET n = 3, chain = (SELECT hash FROM ledger_actrecord WHERE n = 3) WHERE name = 'acts'"
    )
    found = problems()["acts"]
    assert len(found) == 2 and all("not for this place" in problem for problem in found)


@pytest.mark.needs("accounts")
@each_case(
    ("change", "told"),
    [
        ("DELETE FROM auth_user WHERE username = 'bob'", "account 'bob' ({bob}) is gone, and no record says so"),
        (
            'INSERT INTO auth_user SELECT (jsonb_populate_record(u, \'{"id": 77, "username": "eve"}\')).*'
            " FROM auth_user u WHERE username = 'bob'",
            "account 'eve' (77) is there, and no record says so",
        ),
        ("UPDATE auth_user SET is_superuser = true", "account 'bob' ({bob}): is_superuser differ from the last record"),
        (
            "INSERT INTO auth_user_groups (user_id, group_id) SELECT u.id, g.id FROM auth_user u, auth_group g"
            " WHERE u.username = 'bob' AND g.name = 'operator'",
            "account {bob} has the role 'operator' 1 time(s), but its records say 0",
        ),
        ("DELETE FROM durableagents_apikey", "account {bob} has the API key 'laptop' 0 time(s), but its records say 1"),
        (
            "UPDATE durableagents_apikey SET revoked_at = NULL WHERE name = 'old'",
            "account {bob} has the API key 'old' 1 time(s), but its records say 0",
        ),
        (
            "DELETE FROM mfa_authenticator",
            "account {bob} has the second factor 'totp' 0 time(s), but its records say 1",
        ),
    ],
)
def test_an_account_that_is_not_as_its_records_leave_it_is_named(change: str, told: str) -> None:
    """Also for a superuser with all triggers off."""
    bob = User.objects.get(username="bob")
    bob.authenticator_set.create(type="totp", data={})  # type: ignore[attr-defined]
    issue_key(bob, "laptop"), issue_key(bob, "old")
    revoke(ApiKey.objects.filter(name="old"))
    assert [each.problems for each in verify_registers() if each.problems] == []
    tamper(change)
    assert told.format(bob=bob.pk) in of("accounts as recorded").problems


def test_two_that_changed_places_are_found() -> None:
    for each in LISTS:
        (
            tamper(f"UPDATE {each.table} SET n = -1 WHERE n = 1"),
            tamper(f"UPDATE {each.table} SET n = 1 WHERE n = 2"),
            tamper(f"UPDATE {each.table} SET n = 2 WHERE n = -1"),
        )
    assert set(problems()) == {"acts", "accounts"}


@pytest.mark.parametrize(
    "values",
    [
        "NULL, NULL, NULL",
        "(SELECT max(n) + 1 FROM ledger_actrecord), (SELECT chain FROM ledger_register WHERE name = 'acts'), NULL",
    ],
)
def test_an_act_without_a_code_is_nobodys_wherever_it_comes_from(values: str) -> None:
    """Inserted with the application's rights, through the triggers."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_actrecord (action, subject, queue, by, role, auth, address, "
            "justification, before, after, at, n, prev_hash, hash) "
            f"VALUES ('declare_dead', 'x', '', 'user:fiona', '', 'session', '', '', '{{}}', '{{}}', "
            f"clock_timestamp(), {values})"
        )
    assert [problem.partition("declare_dead, ")[2] for problem in problems()["acts"]] == [
        "has no code: this installation did not write it"
    ]


@pytest.mark.parametrize("each", LISTS, ids=lambda each: each.name)
@pytest.mark.parametrize("n", [None, 0, -1, -(2**63)])
@pytest.mark.parametrize("id", [4711, 0, -1, -(2**63)])
def test_a_record_wherever_no_function_of_ours_puts_one_is_named(each: Any, n: int | None, id: int) -> None:
    """Also beyond the list's ends, by its number and its place."""
    columns = [
        name
        for (name,) in run_sql(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{each.table}'::regclass "
            "AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('id', 'n', 'code')"
        )
    ]
    rest = ", ".join(f'"{name}"' for name in columns)
    tamper(f"INSERT INTO {each.table} (id, n, {rest}) SELECT %s, %s, {rest} FROM {each.table} WHERE n = 2", id, n)
    found = problems()
    assert list(found) == [each.name]
    where = "has no number in the list" if n is None else f"number {n}, comes before the first"
    assert any(problem.startswith(f"{each.what} {id}") and where in problem for problem in found[each.name])
    if each.name == "acts":
        assert any(f"{id}, declare_dead, has no code" in problem for problem in found["acts"])


def test_a_long_list_is_walked_to_its_end_whatever_stands_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.verification.registers._BATCH", 2)
    columns = "action, subject, queue, by, role, auth, address, justification, before, after, at"
    for n, id in ((-2, 900), (-1, 901), (0, 902), (None, -3), (None, -2), (None, -1)):
        tamper(
            f"INSERT INTO ledger_actrecord (id, n, {columns}) "
            f"SELECT %s, %s, {columns} FROM ledger_actrecord WHERE n = 2",
            id,
            n,
        )
    assert len({problem.split(",")[0].split(" has")[0] for problem in problems()["acts"]}) == 6
    assert of("acts").records == 10


def test_a_copy_of_a_authentic_act_is_found() -> None:
    """Only the database's owner can insert it."""
    columns = "action, subject, queue, by, role, auth, address, justification, before, after, at, code"
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_actrecord DROP CONSTRAINT ledger_act_code_once")
        cursor.execute(f"INSERT INTO ledger_actrecord ({columns}) SELECT {columns} FROM ledger_actrecord WHERE n = 2")
    assert "is a copy" in problems()["acts"][0]


@pytest.mark.parametrize("n", ["3", "99"])
def test_an_act_that_names_another_place_than_the_next_is_refused(n: str) -> None:
    with pytest.raises(Error, match="does not follow"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_actrecord (action, subject, queue, by, role, auth, address, "
            "justification, before, after, at, n, prev_hash) "
            f"VALUES ('declare_dead', 'x', '', 'user:fiona', '', 'session', '', '', '{{}}', '{{}}', "
            f"clock_timestamp(), {n}, 'x')"
        )
    assert problems() == {}


@pytest.mark.parametrize("at", ["infinity", "-infinity", "9998-01-01", "20000-01-01", "0044-03-15 BC"])
def test_a_time_that_never_was_is_named_and_stops_nothing(at: str) -> None:
    for each in LISTS:
        tamper(f"UPDATE {each.table} SET at = %s WHERE n = 2", at)
    assert (
        all(any("impossible time" in problem for problem in found) for found in problems().values())
        and len(problems()) == 2
    )


def test_what_is_taken_back_leaves_no_gap() -> None:
    with transaction.atomic():
        declare("e.example")
        User.objects.create_user("cyd")
        transaction.set_rollback(True)
    declare("f.example")
    User.objects.create_user("dan")
    assert problems() == {}


def test_a_list_whose_own_row_is_gone_goes_on_and_says_so_until_then() -> None:
    tamper("DELETE FROM ledger_register")
    assert {name: found[0].endswith("ends is missing") for name, found in problems().items()} == {
        "acts": True,
        "accounts": True,
    }
    declare("e.example")
    User.objects.create_user("eve")
    assert problems() == {}


OTHER = {
    "text": "coalesce({c}, '') || 'x'",
    "bigint": "coalesce({c}, 0) + 1",
    "timestamp with time zone": "{c} + interval '1 second'",
    "bytea": "coalesce({c}, ''::bytea) || '\\x00'::bytea",
    "jsonb": "'{{\"forged\": 1}}'::jsonb",
    "uuid": "gen_random_uuid()",
}


def changes(table: str) -> Iterator[tuple[str, str]]:
    types = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s ORDER BY 1"
    for column, kind in run_sql(types, table):
        yield column, OTHER[kind].format(c=f'"{column}"')


def is_done(statement: str) -> bool:
    """Return whether the database accepts it; it refuses a number that is taken."""
    try:
        tamper(statement)
    except Error:
        return False
    return True


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("each", LISTS, ids=lambda each: each.name)
def test_every_change_of_every_column_is_found(each: Any, seed: int) -> None:
    dice, tried = random.Random(seed), set[str]()
    for column, value in changes(each.table):
        with transaction.atomic():
            if is_done(f'UPDATE {each.table} SET "{column}" = {value} WHERE n = {dice.randrange(1, 5)}'):
                tried.add(column)
                assert each.name in problems(), (column, value)
            transaction.set_rollback(True)
    assert len(tried) > 10


def test_the_command_names_what_is_wrong_with_a_list_and_what_to_note_down(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("ledger", "verify", "--all")
    out = capsys.readouterr().out
    assert f"acts: 4 record(s), the last hash is {of('acts').hash}" in out and out.endswith(" 0 problem(s)\n")
    tamper("DELETE FROM ledger_actrecord WHERE n = 2")
    with pytest.raises(SystemExit) as ended:
        call_command("ledger", "verify", "--all")
    lines = capsys.readouterr().out.splitlines()
    assert (
        ended.value.code == 1
        and "acts: act record 2 of the list is missing" in lines
        and json.dumps(lines).count("problem(s)") == 1
    )


@pytest.mark.long
def test_commands_without_a_database_give_one_line_and_their_exit_code(tmp_path: Path) -> None:
    env = plain_env(tmp_path) | {"DATABASE_URL": f"postgresql://nobody@127.0.0.1:{free_ports(1)[0]}/none"}
    for words, code, found in (
        ("ledger verify --all", 2, "start `make up`"),
        ("runs", 6, "the database doesn't answer"),
        ("setup_link", 2, "start `make up`"),
        ("versions list vendor-onboard", 2, "start `make up`"),
    ):
        command = [sys.executable, "manage.py", *words.split()]
        done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (code, ""), words
        assert done.stderr.count(found) == 1 and "Traceback" not in done.stderr, done.stderr
