"""Markers of a run's progress. A revision changes with each change of state, completed node or resolved wait; a resume
token with each claim by a worker."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from hmac import compare_digest
from uuid import UUID

from ledger.chain import microseconds
from ledger.codes import mac
from ledger.errors import InvalidInput
from ledger.keys import word_key

# Internal header of a view's response: there is nothing newer than this revision, and the client wants to wait.
WAITS_FOR = "Durable-Waits-For"


def revision_of(updated_at: datetime) -> str:
    return f"{microseconds(updated_at):x}"


def resume_token(run_id: UUID, epoch: int) -> str:
    """Return a signed token for the run in its current epoch.
    The token becomes invalid when a worker claims the run again."""
    content = run_id.bytes + epoch.to_bytes(8, "big", signed=True)
    return urlsafe_b64encode(content + mac(word_key(), b"resume\x00" + content)[:16]).decode().rstrip("=")


def is_current(token: str, run_id: UUID, epoch: int) -> bool:
    """Return whether the run is still in the token's epoch. Raises InvalidInput for another run's token."""
    try:
        content = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        seen = int.from_bytes(content[16:24], "big", signed=True)
    except ValueError:
        content, seen = b"", 0
    if len(content) != 40 or not compare_digest(token, resume_token(run_id, seen)):
        error = {"field": "resume_token", "problem": "is not a token of this run", "fix": "send the token unchanged"}
        raise InvalidInput("The resume token does not belong to this run.", errors=[error])
    return seen == epoch
