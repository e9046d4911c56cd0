"""Where a function of the database stands now: a later file declares anew what an earlier one, which never changes,
declares too."""

from __future__ import annotations

import re

from tests.conftest import CHECKOUT

_FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION (\w+)\(", re.M)


def newest() -> dict[str, str]:
    """The file that holds, by the function's name. Files without a number are the first ones."""
    files = sorted(CHECKOUT.glob("*/sql/*.sql"), key=lambda file: (file.name[0].isdigit(), file.name))
    return {name: str(file.relative_to(CHECKOUT)) for file in files for name in _FUNCTION.findall(file.read_text())}
