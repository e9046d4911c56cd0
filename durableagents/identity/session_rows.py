"""Protect the session table: a session can't be used by reading, copying or writing its rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session
from django.core.signing import BadSignature, loads
from django.utils import timezone
from django.utils.crypto import salted_hmac

from ledger.verification.registers import Listed


def row_key(session_key: str | None) -> str:
    """Return the key of a session's row in the table. The cookie can't be derived from it."""
    return salted_hmac("durableagents.session", session_key or "", algorithm="sha256").hexdigest()[:40]


def session_salt(row: str) -> str:
    """Return the salt for signing a row's session, which makes the data invalid in any other row."""
    return f"durableagents.session.{row}"


def ends_at(data: Mapping[str, Any]) -> datetime:
    """Return a session's end from its signed data, because any SQL may change `expire_date`."""
    return SessionBase().get_expiry_date(expiry=data.get("_session_expiry"))


def every_session() -> Listed | None:
    """Return the current sessions that the application didn't write, and the number checked; None without sessions."""
    rows = list(Session.objects.filter(expire_date__gt=timezone.now()))
    found = [f"session {row.pk} was not written by the application" for row in rows if not _is_authentic(row)]
    return Listed("sessions", len(rows), "", found) if rows else None


def _is_authentic(row: Session) -> bool:
    try:
        data = loads(row.session_data, salt=session_salt(row.pk))
    except BadSignature:
        return False
    return row.expire_date <= ends_at(data)
