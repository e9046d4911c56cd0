"""docs/sql.md names every function of the database, and the file that holds."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from tests.conftest import CHECKOUT
from tests.docs.newest import newest

_ROW = re.compile(r"^\| `(\w+)` \| `([\w/.]+)` \| [^|]{10,} \|$", re.M)


def test_each_function_is_named_with_the_file_that_holds() -> None:
    page = (CHECKOUT / "docs" / "sql.md").read_text()
    assert _ROW.findall(page) == sorted(newest().items())


@pytest.mark.django_db
def test_they_are_all_that_a_migrated_database_has() -> None:
    """But for what django-pgtrigger brings."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'public' AND proname NOT LIKE '%pgtrigger%'"
        )
        found = {name for (name,) in cursor.fetchall()}
    assert found ^ set(newest()) == set()
