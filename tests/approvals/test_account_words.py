"""What was done to accounts is told in words, never in a programming language's values."""

from __future__ import annotations

from typing import Any

import pytest

from approvals.account_words import LABELS, Change, changes
from durableagents.models import ApiKey
from ledger.models import AccountRecord

NOBODY = {"username": None, "email": None, "is_active": None, "is_staff": None, "is_superuser": None}
ADA = {"username": "ada", "email": "", "is_active": True, "is_staff": False, "is_superuser": False}


def told(before: Any, after: Any) -> list[Change]:
    action = "account_added" if before == NOBODY else "account_changed"
    return changes(AccountRecord(action=action, before=before, after=after))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NOBODY, ADA, [("name", "", "ada"), ("may sign in", "", "yes")]),
        ({}, ADA, [("name", "", "ada"), ("may sign in", "", "yes")]),
        (ADA, {}, [("name", "ada", ""), ("may sign in", "yes", "")]),
        ({"is_active": True}, {"is_active": False}, [("may sign in", "yes", "no")]),
        (
            {"is_superuser": False, "email": ""},
            {"is_superuser": True, "email": "a@b.example"},
            [("e-mail", "none", "a@b.example"), ("has every right", "no", "yes")],
        ),
        (
            {"email": "a@b.example", "first_name": "Ada"},
            {"email": "", "first_name": "Eve"},
            [("e-mail", "a@b.example", "none"), ("first name", "Ada", "Eve")],
        ),
        (
            {"revoked_at": None, "name": "x"},
            {"revoked_at": "2026-11-22T10:00:01.5+01:00", "name": "y"},
            [("name", "x", "y"), ("revoked", "no", "22 Nov 2026 09:00:01 UTC")],
        ),
        (
            {"expires_at": "2026-11-22T10:00:00Z"},
            {"expires_at": None},
            [("expires", "22 Nov 2026 10:00:00 UTC", "never")],
        ),
        ({}, {"role": "operator"}, [("role", "", "Operator")]),
        ({"kind": "md5"}, {"kind": "argon2"}, [("kept by", "md5", "argon2")]),
        ({}, {"odd_column": [1]}, [("odd column", "", "[1]")]),
        ("damaged", None, []),
    ],
)
def test_a_record_is_told_in_words(before: Any, after: Any, expected: list[tuple[str, str, str]]) -> None:
    assert [(one.label, one.was, one.now) for one in told(before, after)] == expected


def test_every_column_of_a_key_has_its_word() -> None:
    on_record = {"user_id", "name", "prefix", "expires_at", "revoked_at"}
    assert on_record <= LABELS.keys() and on_record <= {field.attname for field in ApiKey._meta.concrete_fields}
