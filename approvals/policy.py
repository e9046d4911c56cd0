"""Who may decide what. Pure: no Django, no I/O. A missing policy, an unknown queue or verdict means no."""

from __future__ import annotations

from collections.abc import Iterable

# A queue's decisions belong to one role. Operators and superusers decide nothing by being that. Which queues there are
# is the installation's to say (`DURABLEAGENTS_QUEUES`): apps.py puts them in when the app is loaded.
QUEUES: dict[str, str] = {}
VERDICTS = {"approve": "approved", "reject": "rejected"}


def role_for(queue: str) -> str | None:
    """The role that decides a queue; None for a queue nobody has been put in charge of."""
    return QUEUES.get(queue)


def may_decide(queue: str, roles: Iterable[str]) -> bool:
    """Whether somebody with these roles may decide."""
    role = role_for(queue)
    return role is not None and role in set(roles)
