"""Rows that carry a code of all that they say (ledger/codes.py): what somebody with the application's rights in the
database writes past us gives nobody anything."""

from __future__ import annotations

from typing import Any

from django.db import models

from ledger.codes import is_rows_code, row_code
from ledger.keys import code_key


class Coded(models.Model):
    """A row whose code covers all that it says."""

    code = models.BinaryField(null=True)
    TABLE = ""

    class Meta:
        abstract = True

    def coded(self) -> dict[str, Any]:
        """What the code covers."""
        raise NotImplementedError

    def seal(self) -> None:
        """Give it the code of what it says now."""
        self.code = row_code(code_key(), self.TABLE, self.coded())

    @property
    def is_genuine(self) -> bool:
        """Whether one of our processes wrote just this."""
        return self.code is not None and is_rows_code(code_key(), self.TABLE, self.coded(), bytes(self.code))
