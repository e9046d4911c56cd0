"""A receipt as somebody typed it."""

from __future__ import annotations

from typing import Any

from ledger.errors import InvalidInput
from ledger.web import strict_json


def receipt_of(written: str) -> Any:
    """What upstream gave as proof: JSON if it is JSON, else the words themselves."""
    try:
        return strict_json.loads(written.encode("utf-8", "replace"))
    except strict_json.MalformedJSON as error:
        if written[0] in "{[":
            words = str(error).removeprefix("The body is not JSON: ")
            problem = {"field": "receipt", "problem": words, "fix": "correct the JSON, or write plain words"}
            raise InvalidInput(f"The receipt is not valid JSON: {words}", errors=[problem]) from None
        return written
