"""The authority under which a run's record is written: a worker's lease, or a named actor."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's right to write one run: both values must match the run's head on every write."""

    epoch: int
    token: UUID


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, key, system component or outside party that acts without a lease.

    `role` is the role that allowed the act. `auth` is how the actor was authenticated: `session` (optionally
    with `+sso`, `+totp`, `+recovery_code`, `+passkey`), `api_key`, `token`, `system` or `shell`. `address` is the
    address that the request came from. `person` is the account's primary key, since names can change, and one account
    may act by session and by key. `batch` is the bulk act that this one belongs to. `proved_at` is when the session's
    user last authenticated (on the database's clock), and `proved_by` how (`password`, `totp`, `recovery_code`,
    `passkey`, `sso`); empty for keys.
    """

    kind: str
    name: str
    role: str = ""
    auth: str = "system"
    address: str = ""
    person: int | None = None
    batch: str = ""
    proved_at: datetime | None = None
    proved_by: str = ""

    @property
    def is_person(self) -> bool:
        return self.kind in ("user", "key")

    @property
    def ref(self) -> str:
        """Return the actor's name in records, for example `user:olga`."""
        return f"{self.kind}:{self.name}"


def os_account() -> str:
    """Return the name of the operating system's account that runs this process.

    Containers may run under a number that has no name; then it is `uid:NUMBER`."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"


SWEEPER = Actor(kind="system", name="sweeper")
WATCHDOG = Actor(kind="system", name="watchdog")
OUTSIDE = Actor(kind="outside", name="callback", auth="token")
