"""Issue the first API key of an automated installation from a file, as configured in DURABLEAGENTS_BOOTSTRAP_KEY."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError

from durableagents.env import EnvironmentProblem
from durableagents.identity import names
from durableagents.identity.auth import MAX_DAYS, issue_key
from durableagents.identity.rights import known_roles, unknown_role
from durableagents.models import ApiKey
from ledger.acting import acting
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError

NAME = "DURABLEAGENTS_BOOTSTRAP_KEY"
_TOKEN = re.compile(r"da_[A-Za-z0-9_-]{43,200}")
_BY = Actor("system", "bootstrap", auth="system")


def issue(wanted: str) -> bool:
    """Create an account and its key as specified by `ACCOUNT:ROLE:FILE`, if no key was ever issued; return whether it
    did.

    Raises EnvironmentProblem, and then changes nothing.
    """
    if not wanted or ApiKey.objects.exists():
        return False
    name, _, rest = wanted.partition(":")
    role, _, path = rest.partition(":")
    if not (name and role and path):
        raise EnvironmentProblem(f"{NAME} must be ACCOUNT:ROLE:FILE")
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(f"{NAME}: {path} can't be read: {error}") from error
    if not _TOKEN.fullmatch(token):
        raise EnvironmentProblem(
            f"{NAME}: {path} contains no key: write da_ and at least 43 random letters, digits, - or _ into it"
        )
    if problem := unknown_role([role], known_roles()):
        raise EnvironmentProblem(f"{NAME}: {problem}")
    try:
        with acting(_BY, NAME):
            user = User(username=names.free_name(name))
            user.set_unusable_password()
            user.save(force_insert=True)
            user.groups.set(Group.objects.filter(name=role))
            issue_key(user, "bootstrap", token=token, expires_at=database_now() + timedelta(days=MAX_DAYS))
    except ValidationError as error:
        raise EnvironmentProblem(f"{NAME}: {' '.join(error.messages)}") from error
    except DurableAgentsError as error:
        raise EnvironmentProblem(f"{NAME}: {error.detail}") from error
    return True
