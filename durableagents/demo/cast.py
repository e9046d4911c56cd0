"""Create the demo's users and API keys, and list them in the file `demo.json`.

`demo.json` is the only place where a password or a key is stored in clear text. Its mode is 0600, and it is
written before the web process starts. It is read again at the next start, so that the same people keep the same
passwords and keys, whatever happened to the database in between.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from django.contrib.auth.models import Group, User

from durableagents.demo.registration import PEOPLE
from durableagents.env import Environment, EnvironmentProblem, replace_private
from durableagents.identity import auth
from ledger.acting import acting
from ledger.actors import Actor

ADMIN = "admin"
FILE = "demo.json"
DEMO = Actor(kind="system", name="demo")
KEY_NAME = "demo"

_FIRST = {person.role: name for name, person in reversed(PEOPLE.items())}
# The name of a person's key in the file: the role, or the person's own name if somebody earlier has the same role.
KEYS = {name: person.role if _FIRST[person.role] == name else name for name, person in PEOPLE.items()}


def make_cast(environment: Environment) -> None:
    """Create the users, groups and keys listed in `demo.json`; generate and add those missing from it."""
    known = _read(environment)
    kept, keys = _people_in(known, environment)
    passwords = {name: kept.get(name) or secrets.token_urlsafe(12) for name in (*PEOPLE, ADMIN)}
    with acting(DEMO):
        for name, person in PEOPLE.items():
            user = _person(name, passwords[name], person.role, is_new_password=name not in kept)
            keys[KEYS[name]] = auth.issue_key(user, KEY_NAME, token=keys.get(KEYS[name]))
        _person(ADMIN, passwords[ADMIN], None, is_new_password=ADMIN not in kept)
    content = {
        "base_url": environment.base_url,
        "sandbox_url": environment.sandbox_url,
        "users": [
            {"username": name, "password": passwords[name], "roles": [person.role]} for name, person in PEOPLE.items()
        ]
        + [{"username": ADMIN, "password": passwords[ADMIN], "roles": ["superuser"]}],
        "api_keys": {of: keys[of] for of in KEYS.values()},
    }
    if content != known:
        replace_private(environment.data / FILE, json.dumps(content, indent=2) + "\n")


def _read(environment: Environment) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads((environment.data / FILE).read_text())
        return known
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(environment, error) from None


def _people_in(known: dict[str, Any], environment: Environment) -> tuple[dict[str, str], dict[str, str]]:
    """Return passwords by user name, and keys by their names in the file (see `KEYS`)."""
    try:
        passwords = {str(user["username"]): str(user["password"]) for user in known.get("users", [])}
        keys = {str(of): str(key) for of, key in known.get("api_keys", {}).items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise _unreadable(environment, error) from None
    return passwords, keys


def _unreadable(environment: Environment, error: Exception) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"cannot read {environment.data / FILE}: {error or type(error).__name__}"
        " (remove it to create new passwords and keys)"
    )


def _person(name: str, password: str, role: str | None, *, is_new_password: bool) -> User:
    """Create or update a user. `role` None is the superuser, who manages people and keys but decides no approvals."""
    user, is_new = User.objects.get_or_create(username=name)
    user.is_staff = user.is_superuser = role is None
    # Hashing takes a quarter of a second by design: only what is new is hashed.
    if is_new or is_new_password:
        user.set_password(password)
    user.save()
    if role is not None:
        group, _ = Group.objects.get_or_create(name=role)
        user.groups.set([group])
    return user
