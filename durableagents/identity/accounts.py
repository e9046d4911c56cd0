"""Hash passwords."""

from __future__ import annotations

from django.contrib.auth.hashers import Argon2PasswordHasher


class Argon2(Argon2PasswordHasher):
    """Argon2id with the memory of OWASP's cheat sheet: Django's 100 MiB per attempt would let attackers fill it."""

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1
