"""Compare protected rows with their codes to find changes made outside the application."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from ledger.models import RowCode
from ledger.protected import Protected, forged_rows, is_coded, name_of, registry, wrong_rows
from ledger.verification.registers import Listed


def protected_rows() -> Listed:
    """Check every row of every protected table, and every code."""
    found = [problem for protected in registry.values() for problem in _rows(protected)]
    codes = RowCode.objects.order_by("table_name", "key")
    found += [
        f"code {code.n} of {code.table_name} {code.key} was not written with this installation's key"
        for code in codes.iterator()
        if not is_coded(code)
    ]
    return Listed("protected rows", codes.count(), "", found)


def _rows(protected: Protected) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT p.proof::text FROM ({protected.proofs_sql()}) p")
        proofs = [proof for (proof,) in cursor.fetchall()]
    wrong = dict(wrong_rows(proofs)) | {str(row.pk): True for row in forged_rows(protected)}
    for key, is_there in wrong.items():
        row = f"{name_of(protected, key)} ({protected.table} {key})"
        yield f"{row} was {'added or changed' if is_there else 'deleted'} outside the application"
