"""The demo's people keep their passwords and keys, whatever happens to file or database."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User

from durableagents.demo.cast import KEYS, make_cast
from durableagents.demo.registration import PEOPLE
from durableagents.env import Environment, EnvironmentProblem
from durableagents.identity.auth import digest
from durableagents.models import ApiKey

pytestmark = pytest.mark.django_db


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(DURABLEAGENTS_DATA=tmp_path, PORT=8123)  # type: ignore[call-arg]


def test_each_role_has_a_person_with_a_password_and_a_key(environment: Environment) -> None:
    make_cast(environment)
    path = environment.data / "demo.json"
    found = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for person in found["users"]:
        user = authenticate(username=person["username"], password=person["password"])
        assert isinstance(user, User)
        groups = [group.name for group in user.groups.all()]
        assert groups == ([] if user.is_superuser else person["roles"])
    assert set(found["api_keys"]) == {*"integrator operator approver_finance treasurer approver_legal auditor".split()}
    assert len(set(found["api_keys"].values())) == 6


def test_of_two_who_share_a_role_each_has_a_key_of_their_own(environment: Environment) -> None:
    """The first one's key stays under the role's name, as before there was a second."""
    make_cast(environment)
    keys = json.loads((environment.data / "demo.json").read_text())["api_keys"]
    whose = {name: ApiKey.objects.get(hash=digest(keys[of])).user.get_username() for name, of in KEYS.items()}
    assert whose == {name: name for name in PEOPLE} and KEYS["finance"] == "approver_finance"


def test_a_file_from_before_there_were_two_keeps_its_keys(environment: Environment) -> None:
    make_cast(environment)
    path = environment.data / "demo.json"
    before = json.loads(path.read_text())
    older = before | {
        "users": [user for user in before["users"] if user["username"] != "treasurer"],
        "api_keys": {of: key for of, key in before["api_keys"].items() if of != "treasurer"},
    }
    path.write_text(json.dumps(older))
    make_cast(environment)
    now = json.loads(path.read_text())
    assert {**now["api_keys"], "treasurer": ""} == {**before["api_keys"], "treasurer": ""}
    assert _password(now, "finance") == _password(before, "finance") and now["api_keys"]["treasurer"]


def test_a_second_start_changes_nothing(environment: Environment) -> None:
    make_cast(environment)
    before = (environment.data / "demo.json").read_bytes()
    make_cast(environment)
    assert (environment.data / "demo.json").read_bytes() == before
    assert (User.objects.count(), ApiKey.objects.count()) == (7, 6)


def test_a_new_database_gets_the_people_the_file_knows(environment: Environment) -> None:
    make_cast(environment)
    before = json.loads((environment.data / "demo.json").read_text())
    User.objects.all().delete()
    make_cast(environment)
    assert json.loads((environment.data / "demo.json").read_text()) == before
    assert authenticate(username="finance", password=_password(before, "finance"))


def test_a_lost_file_means_new_passwords_that_work(environment: Environment) -> None:
    make_cast(environment)
    (environment.data / "demo.json").unlink()
    make_cast(environment)
    found = json.loads((environment.data / "demo.json").read_text())
    assert authenticate(username="legal", password=_password(found, "legal"))


@pytest.mark.parametrize("damaged", ['{"users": [', "[]", '{"users": [{"username": "legal"}]}'])
def test_a_damaged_file_is_named_not_overwritten(environment: Environment, damaged: str) -> None:
    path = environment.data / "demo.json"
    path.write_text(damaged)
    with pytest.raises(EnvironmentProblem, match=r"demo\.json"):
        make_cast(environment)
    assert path.read_text() == damaged


def _password(content: dict, name: str) -> str:  # type: ignore[type-arg]
    return next(user["password"] for user in content["users"] if user["username"] == name)
