"""The parts and the digest of an agent's version.

Code is represented by the syntax trees of the agent's own packages, without layout and docstrings. Libraries don't
count.
"""

from runs.engine.fingerprint.described import Described
from runs.engine.fingerprint.schemes import (
    as_stored,
    digest,
    first_scheme,
    is_current,
    parts,
    scheme_of,
    second_scheme,
    tool_digest,
)
from runs.engine.fingerprint.words import changed, differences, join_differences, next_version

__all__ = [
    "Described",
    "as_stored",
    "join_differences",
    "changed",
    "differences",
    "digest",
    "first_scheme",
    "is_current",
    "next_version",
    "parts",
    "scheme_of",
    "second_scheme",
    "tool_digest",
]
