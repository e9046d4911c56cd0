"""Hash passwords."""

from __future__ import annotations

from django.contrib.auth.hashers import Argon2PasswordHasher


class Argon2(Argon2PasswordHasher):
    """Argon2id with the memory that OWASP's password storage cheat sheet asks for: Django's 100 MiB a try would be a
    way to fill the machine."""

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1
