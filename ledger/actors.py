"""Under whose authority a run's record may be written: a worker's lease, or a named actor."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's right to write one run: both parts must match the run's head on every write."""

    epoch: int
    token: UUID


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, key, part of the system or outside party that acts without a lease.

    `role` is the role under which the act was allowed, `auth` how strongly the actor was authenticated (`session`,
    which may go on `+sso`, `+totp`, `+recovery_code`, `+passkey`; `api_key`, `token`, `system`, `shell`), `address`
    where the request came from, `person` the primary key of the account: names can be changed, and one account acts by
    session and by key. `batch` is the act on many runs that this one is a part of. `proved_at` is when this session's
    person last showed who they are, by the database's clock, and `proved_by` with what (`password`, `totp`,
    `recovery_code`, `passkey`, `sso`); a key shows nothing.
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
        """How records name this actor, for example `user:olga`."""
        return f"{self.kind}:{self.name}"


SWEEPER = Actor(kind="system", name="sweeper")
WATCHDOG = Actor(kind="system", name="watchdog")
OUTSIDE = Actor(kind="outside", name="callback", auth="token")
