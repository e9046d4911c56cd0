"""`manage.py runs erase RUN --reason …`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from django.db import connection

from durableagents.contrib.encryption import erasure
from ledger.errors import InvalidInput
from runs.management.shell import command_actor

_MAY_VACUUM = (
    "SELECT pg_has_role(current_user, relowner, 'MEMBER') FROM pg_class WHERE oid = 'encryption_runkey'::regclass"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--reason", default="", help="for erase, same as --justification: reason; stays readable")
    parser.add_argument(
        "--with-children", action="store_true", help="for erase: also the runs that hold copies of its content"
    )


def lines(run_id: UUID, options: Mapping[str, Any]) -> Iterator[str]:
    """Erase a run's content; yield lines about who erased it and what remains.

    Raises the same errors as `erasure.erase`, and InvalidInput if two reasons are given.
    """
    reason, same = options["reason"], options["justification"]
    if reason and same:
        problem = {"field": "--justification", "problem": "was given together with --reason", "fix": "give one of them"}
        raise InvalidInput("Give --reason or --justification, not both.", errors=[problem])
    done = erasure.erase(
        run_id, with_children=options["with_children"], by=command_actor(), justification=reason or same
    )
    yield f"{run_id}: {done.said}" if done.is_new else f"{run_id} was already erased. {done.said}"
    for other in done.others:
        yield f"{other}: erased with it"
    if done.problems:
        yield f"note: verification had found {done.problems} problem(s); not all can be checked any more"
    for what in done.remains:
        yield f"remains: {what}"
    if done.is_new:
        yield _vacuumed()


def _vacuumed() -> str:
    """Vacuum the deleted key from the table's file if this database role may; return a line about what is left."""
    with connection.cursor() as cursor:
        cursor.execute(_MAY_VACUUM)
        if not cursor.fetchone()[0]:
            return (
                "The deleted key's bytes stay in the table's file until it is vacuumed: run VACUUM encryption_runkey "
                "as the owner, or wait for autovacuum. Backups and WAL made before hold it until they expire."
            )
        cursor.execute("VACUUM encryption_runkey")
    return "encryption_runkey was vacuumed. Backups and WAL made before hold the key until they expire."
