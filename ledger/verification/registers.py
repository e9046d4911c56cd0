"""Verify the records without a run: acts such as declaring a host dead, and changes of accounts."""

# The database numbers and links both lists (ledger/sql/registers.sql), so missing, changed, inserted and moved rows are
# found. Acts also carry a code over number and link, so nobody without the key can repair that list. The database,
# which has no key, writes the account records: so the database's owner could rewrite that list from some row on.
# Neither list reveals that its end was cut off if its row in the register was changed accordingly. A number and a hash
# kept elsewhere reveal that.

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from ledger.models import AccountRecord, ActRecord, Register, RowCode
from ledger.protected import Protected, forged_rows, is_coded, name_of, registry, wrong_rows
from ledger.verification.runs import UNREADABLE, no_sense, snapshot

_BATCH = 200


@dataclass(frozen=True, slots=True)
class Listed:
    """The result of checking one list. Kept outside the database, `records` and `hash` reveal a later truncation."""

    name: str
    records: int
    hash: str
    problems: list[str]


@dataclass(frozen=True, slots=True)
class _List:
    name: str
    what: str
    table: str
    body: str
    condition: str = "true"


LISTS = (
    _List("acts", "act record", "ledger_actrecord", "ledger_act_body", "t.run_id IS NULL"),
    _List("accounts", "account record", "ledger_accountrecord", "ledger_account_body"),
)
# The database sets these times, so none can be in the future or before this century.
_ROWS = """
SELECT t.id, t.n, t.prev_hash, t.hash, {body}(t), t.at BETWEEN '2000-01-01' AND clock_timestamp() + interval '1 minute'
FROM {table} t WHERE {condition} AND {walk} %s::bigint ORDER BY {by} LIMIT %s
"""
# Rows with a place come first, then rows without one, each read in the order of its own column. Both start at the
# lowest number, since forged rows may have numbers below one.
_WALKS = ((1, "t.n", "t.n"), (0, "t.id", "t.n IS NULL AND t.id"))
_LOWEST = -(2**63)


# Checks by apps of their own records without a run; each returns None if there are no records.
more: list[Callable[[], Listed | None]] = []


def register(*checks: Callable[[], Listed | None]) -> None:
    """Add checks. Idempotent."""
    more.extend(check for check in checks if check not in more)


def verify_registers() -> list[Listed]:
    """Check every list, from one snapshot of the database."""
    with snapshot():
        found = [_finished(each.name, _Reading(each).through) for each in LISTS]
        found += [_finished(check.__name__.replace("_", " "), check) for check in more]
        return [listed for listed in found if listed is not None]


def _finished(name: str, check: Callable[[], Listed | None]) -> Listed | None:
    """Return a check's result.

    An unreadable row is reported as a problem and doesn't stop the checks of the other lists.
    """
    try:
        return check()
    except UNREADABLE as error:
        return Listed(name, 0, "", [no_sense(name, error)])


class _Reading:
    def __init__(self, of: _List) -> None:
        self.of = of
        self.stands = Register.objects.filter(pk=of.name).first()
        self.n, self.rows = 0, 0
        self.hash = hashlib.sha256(f"register:{of.name}".encode()).digest()
        self.codes: set[bytes] = set()
        self.problems: list[str] = []

    def through(self) -> Listed:
        """Check all rows in order, then compare the last one with the list's `Register` row."""
        for rows in self._pages():
            good = [row for row in rows if self._follows(row)]
            if self.of.name == "acts":
                self._check_codes([row[0] for row in good])
            else:
                self._check_signatures([row[0] for row in good])
        self.problems += self._where_it_stands()
        return Listed(self.of.name, self.rows, self.hash.hex() if self.n else "", self.problems)

    def _pages(self) -> Iterator[list[Any]]:
        for column, by, which in _WALKS:
            rows = self._next(by, f"{which} >=", _LOWEST)
            while rows:
                yield rows
                rows = self._next(by, f"{which} >", rows[-1][column])

    def _next(self, by: str, walk: str, last: int) -> list[Any]:
        of = self.of
        with connection.cursor() as cursor:
            cursor.execute(
                _ROWS.format(body=of.body, table=of.table, condition=of.condition, walk=walk, by=by),
                [str(last), _BATCH],
            )
            return cursor.fetchall()

    def _follows(self, row: Sequence[Any]) -> bool:
        """Check a row's place, links and time; return whether it can be checked further."""
        id, n, prev, link, body, is_time = row
        what, self.rows = f"{self.of.what} {id}", self.rows + 1
        if not is_time:
            self.problems.append(f"{what} has an impossible time: before the year 2000 or in the future")
        if n is None:
            self.problems.append(
                f"{what} has no number in the list: it was not written by the application's database functions"
            )
            return is_time
        if n < 1:
            self.problems.append(
                f"{what}, number {n}, comes before the first of the list: the application did not write it"
            )
            return bool(is_time)
        if n != self.n + 1:
            self.problems.append(
                f"{self.of.what}s {self.n + 1} to {n - 1} of the list are missing"
                if n > self.n + 2
                else f"{self.of.what} {self.n + 1} of the list is missing"
            )
        elif bytes(prev or b"") != self.hash:
            self.problems.append(f"{what}, number {n}, does not link to the record before it")
        if hashlib.sha256(bytes(prev or b"") + n.to_bytes(8, "big", signed=True) + body.encode()).digest() != bytes(
            link or b""
        ):
            self.problems.append(f"{what}, number {n}, was changed: its content does not match its hash")
        self.n, self.hash = n, bytes(link or b"")
        return bool(is_time)

    def _check_codes(self, ids: list[int]) -> None:
        for row in ActRecord.objects.filter(pk__in=ids).order_by("n", "id"):
            what = f"act record {row.id}, {row.action},"
            code = bytes(row.code or b"")
            if not code:
                self.problems.append(f"{what} has no code: this installation did not write it")
            elif code in self.codes:
                self.problems.append(f"{what} is a copy: its code was already used")
            elif not row.is_authentic:
                self.problems.append(
                    f"{what} was not written with this installation's key, or not for this place, or was changed"
                )
            self.codes.add(code)

    def _check_signatures(self, ids: list[int]) -> None:
        """Report every account change that the application did not sign, with its claimed actor."""
        for row in AccountRecord.objects.filter(pk__in=ids).order_by("n", "id"):
            if not row.is_signed:
                self.problems.append(
                    f"account record {row.id}, {row.action} of {row.subject} at {row.at.isoformat()}, says it was done "
                    f"by {row.by}, and was not signed by the application"
                )

    def _where_it_stands(self) -> Iterator[str]:
        if self.stands is None:
            if self.rows:
                yield f"the record of where the list of {self.of.name} ends is missing"
        elif self.stands.n != self.n:
            yield f"the list of {self.of.name} ends at number {self.n}, but should end at {self.stands.n}"
        elif self.n and bytes(self.stands.chain) != self.hash:
            yield f"the last record of {self.of.name} is not the one with which the list should end"


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
