"""What a search may read, for tests/integration/scale/test_reads.py."""

from __future__ import annotations

from durableagents.contrib.search import words


def max_found(path: str) -> int:
    """Return how many runs a search by words looks at, for this address."""
    if "q=" not in path:
        return 0
    return words.MAX_OF_OTHERS if "&agent=" in path else words.MAX_FOUND
