"""Derive the id of a trace span from the part of the record that the span describes.

The ids are not stored. Any process can compute the id of a span that another process exported, and a row of the record
is enough to find its span.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b


@lru_cache(maxsize=8192)
def span_id(run_id: str, *place: object) -> str:
    """Return the id of a span of a run, 16 hex digits.

    Without a `place` it is the span of the run itself; for a call, the place is slot, attempt and "call".
    """
    return blake2b("|".join([run_id, *map(str, place)]).encode(), digest_size=8).hexdigest()


def viewer_url(template: str, trace_id: str, span: str) -> str:
    """Return the URL of a span in a trace viewer; "" if no URL template is configured."""
    return template.replace("{trace_id}", trace_id).replace("{span_id}", span)


def traceparent(trace_id: str, span: str) -> str:
    """Return a W3C `traceparent` header."""
    return f"00-{trace_id}-{span}-01"
