"""What a version of an agent is made of, and the digest by which another process sees that it has the same.

Code counts as its syntax tree: layout, comments and docstrings change nothing (what a model reads of them is in the
tools' descriptions and the models' schemas). With a function come the functions, classes and constants that it names,
and theirs, as far as they belong to the agent's own package. A library is not the agent. See docs/decisions/0044.
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
