"""Compare protected rows with their codes to find changes made outside the application."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from django.db import connection

from ledger.models import RowCode
from ledger.protected import Protected, forged_rows, is_coded, name_of, registry, wrong_rows
from ledger.verification.registers import Listed


def protected_rows() -> Listed:
    """Check every row of every protected table, and every code."""
    found = [problem for protected in registry.values() for problem in _rows(protected)]
    rows = RowCode.objects.order_by("table_name", "key", "n")
    count = rows.count()
    for (table, key), codes in groupby(rows.iterator(), lambda row: (row.table_name, row.key)):
        found += _codes(table, key, list(codes))
    return Listed("protected rows", count, "", found)


def _rows(protected: Protected) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT p.proof::text FROM ({protected.proofs_sql()}) p")
        proofs = [proof for (proof,) in cursor.fetchall()]
    wrong = dict(wrong_rows(proofs)) | {str(row.pk): True for row in forged_rows(protected)}
    for key, is_there in wrong.items():
        row = f"{name_of(protected, key)} ({protected.table} {key})"
        yield f"{row} was {'added or changed' if is_there else 'deleted'} outside the application"


def _codes(table: str, key: str, codes: list[RowCode]) -> Iterator[str]:
    """Check the codes of one row: all have this installation's key, and none is missing."""
    for n, row in enumerate(codes, start=1):
        if row.n != n:
            yield f"code {n} of {table} {key} is missing"
            return
        if not is_coded(row):
            yield f"code {row.n} of {table} {key} was not written with this installation's key"
