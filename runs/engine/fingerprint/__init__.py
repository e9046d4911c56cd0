"""The parts of an agent's version, and the digest by which processes check that they have the same version.

Code counts as its syntax tree: layout, comments and docstrings don't matter (those that models read are in tool
descriptions and schemas). A function includes the functions, classes and constants that it names, and theirs, as far as
they belong to the agent's own package. Libraries don't count. See docs/decisions/0044.
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
from runs.engine.fingerprint.words import brief, changed, differences, next_version

__all__ = [
    "Described",
    "as_stored",
    "brief",
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
