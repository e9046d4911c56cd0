"""Sets of roles, for the tables of who may use which address."""

from __future__ import annotations

from typing import Any

from ledger.web.roles import ROLES

# An account without a role, and a superuser without one.
NOBODY, SUPERUSER = "nobody", "superuser"
EVERY = frozenset(ROLES)
OPERATE, START = frozenset({"operator"}), frozenset({"integrator", "operator"})
# Access alone; then the run decides.
STOP = EVERY - {"auditor"}
PUBLIC: frozenset[Any] = frozenset({*ROLES, NOBODY, SUPERUSER, None})
# Anybody who configures queues, whatever their roles.
ADMINS = frozenset({SUPERUSER})
