"""Serve one run's bundle over HTTP, for API and console."""

from __future__ import annotations

import os
import tempfile
from uuid import UUID

from durableagents.contrib.evidence.export import export
from durableagents.contrib.evidence.leaving_out import Choice
from ledger.actors import Actor
from ledger.append import is_recorded
from ledger.errors import NotFound
from ledger.verification.archives import archived
from ledger.web.downloads import FileInPieces
from ledger.web.roles import APPROVER, AUDITOR, OPERATOR
from ledger.web.seeing.payloads import must_read
from ledger.web.seeing.viewers import viewer

ROLES = (AUDITOR, OPERATOR, APPROVER)


def must_export(run_id: UUID) -> None:
    """Check that the reader may export the run. Raises NotFound, PayloadsHidden.

    The run must exist or be archived, and the reader must have the right to read its payloads. A reader who may read
    the payloads of every run may also export a run that has no content.
    """
    if not is_recorded(run_id) and not archived([run_id]):
        raise NotFound("run", run_id)
    if not viewer().reads_all:
        must_read(run_id)


def bundle_response(run_id: UUID, choice: Choice, *, by: Actor, reason: str = "") -> FileInPieces:
    """Make the bundle in a temporary file and return it as a response that is sent in pieces.

    The caller has checked the role. If the bundle can't be made, nothing is sent. Raises NotFound, PayloadsHidden,
    Busy, and the errors of `export`.
    """
    must_export(run_id)
    file = tempfile.TemporaryFile(prefix="evidence-")  # noqa: SIM115  the response closes it
    try:
        export([run_id], file, by=by, choice=choice, reason=reason)
    except BaseException:
        file.close()
        raise
    part = range(file.seek(0, os.SEEK_END))
    return FileInPieces(file, f"evidence-{run_id}.zip", content_type="application/zip", part=part)
