"""The demo's people and their keys, and the file that tells others about them.

`demo.json` is the only place where a password or a key is written in clear; it is 0600 and made
before the web starts. It is also read back: at the next start the same people keep the same
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
# Under which name someone's key stands in the file: their role's, or their own where someone before them holds it too.
KEYS = {name: person.role if _FIRST[person.role] == name else name for name, person in PEOPLE.items()}


def make_cast(environment: Environment) -> None:
    """Users, groups and keys as `demo.json` has them; what it lacks is generated and added."""
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
    """Passwords by name and keys by role (`KEYS`)."""
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
    """`role` None: the superuser, who sets up people and keys and decides nothing."""
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
