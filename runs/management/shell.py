"""The actor for commands in a shell on the server."""

from __future__ import annotations

from django.core.management.base import CommandError
from django.db import OperationalError

from ledger.actors import Actor, os_account
from ledger.web.roles import OPERATOR
from runs.journal import pooler


def operator() -> Actor:
    """Return the operating system's account as an operator.
    Environment variables can't change it. Anyone with a shell on the server may operate."""
    return command_actor(OPERATOR)


def command_actor(role: str = "") -> Actor:
    return Actor("os", os_account(), role=role, auth="shell")


def refuse_what_does_not_fit() -> None:
    """End with one line and exit code 2 if the database doesn't suit this process.
    During an outage this can't be determined; each process then checks before it serves."""
    try:
        refusal = pooler.refusal()
    except OperationalError:
        return
    if refusal:
        raise CommandError(refusal, returncode=2)
