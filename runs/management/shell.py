"""Who acts from a shell on the server."""

from __future__ import annotations

import os
import pwd

from ledger.actors import Actor
from ledger.web.roles import OPERATOR


def operator() -> Actor:
    """The operating system's account, which no environment variable can change: whoever has a shell here operates."""
    return whoever(OPERATOR)


def whoever(role: str = "") -> Actor:
    """The same, for what needs no role."""
    return Actor("os", pwd.getpwuid(os.getuid()).pw_name, role=role, auth="shell")
