"""The hasher of passwords."""

from __future__ import annotations

from django.contrib.auth.hashers import Argon2PasswordHasher


class Argon2(Argon2PasswordHasher):
    """Argon2id with the memory size that OWASP's cheat sheet recommends.

    With Django's 100 MiB per attempt, attackers could exhaust the memory.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1
