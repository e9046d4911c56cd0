"""Every error of the API as a problem document (RFC 9457).

`type` is a stable URN, `title` its name, and `detail` describes this occurrence; domain errors add their own members.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.http.multipartparser import MultiPartParserError
from django.template import TemplateDoesNotExist, loader
from django.urls import reverse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from ledger import context
from ledger.codec import ContentUnavailable, KeyMissing
from ledger.errors import Busy, DurableAgentsError, NotFound, Proposed, first_line
from ledger.web import pressure
from ledger.web.seeing.viewers import explained

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2

_CODES = {
    exceptions.ParseError: "malformed",
    exceptions.NotAuthenticated: "unauthenticated",
    exceptions.AuthenticationFailed: "unauthenticated",
    exceptions.PermissionDenied: "forbidden",
    exceptions.NotFound: "not-found",
    exceptions.MethodNotAllowed: "method-not-allowed",
    exceptions.UnsupportedMediaType: "unsupported-media-type",
    exceptions.Throttled: "throttled",
}


_HINTS = {
    exceptions.NotAuthenticated: "Send an API key in a header, as `Authorization: Bearer <key>`.",
    exceptions.UnsupportedMediaType: "Send JSON with the header `Content-Type: application/json`.",
}


def document(status: int, code: str, title: str, detail: str, **extra: Any) -> dict[str, Any]:
    """Return a problem document. Our own members never replace the standard ones."""
    own = {name: value for name, value in extra.items() if name not in _STANDARD}
    return identified(
        {
            "type": f"urn:durableagents:problem:{code}",
            "title": title,
            "status": status,
            "detail": detail,
            "code": code,
            **own,
        }
    )


def identified(problem: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the id of the current request, if there is one."""
    request_id = context.request_id()
    return problem | {"request_id": request_id} if request_id else problem


def waiting(error: Proposed) -> tuple[dict[str, str], dict[str, str]]:
    """Return the body and the headers of the 202 response to an act that waits for a second person."""
    fields = {"change": str(error.change), "state": "open", "detail": "A second person must approve this change."}
    return fields, {"Location": reverse("api-change", args=[error.change])}


_STANDARD = {"type", "title", "status", "detail", "code", "request_id"}


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception hook. Returns None for unknown errors (bugs): Django logs them and calls `handler500`."""
    if isinstance(error, Proposed):
        problem, headers = waiting(error)
        return Response(problem, status=202, headers=headers)
    known = _known_problem(explained(error, (context.get("kwargs") or {}).get("run_id")))
    if known is None:
        return None
    body, headers = known
    set_rollback()
    answer = Response(body, status=body["status"], headers=headers, content_type=CONTENT_TYPE)
    # This was already logged in one line above; Django would log one error per request during an outage.
    answer._has_been_logged = body["status"] == 503  # type: ignore[attr-defined]
    return answer


def _known_problem(error: Exception) -> tuple[dict[str, Any], dict[str, str]] | None:
    if isinstance(error, DurableAgentsError):
        if error.status == DurableAgentsError.status and not _has_status(error):
            log.error("a domain error without a status of its own", exc_info=error)
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if error.status in (429, 503) else {}
        return document(error.status, error.code, error.title, error.detail, **error.extra), headers
    if isinstance(error, Http404):
        return _no_such_address(), {}
    if isinstance(error, PermissionDenied):
        return document(403, "forbidden", "Not allowed", "None of your roles allows this."), {}
    if isinstance(error, exceptions.APIException):
        return _from_framework(error)
    if isinstance(error, (BadRequest, MultiPartParserError, SuspiciousOperation)):
        return unreadable(error), {}
    if pressure.is_outage(error):
        return _outage(error), {"Retry-After": str(RETRY_AFTER_SECONDS)}
    if isinstance(error, (DataError, psycopg.DataError)):
        return document(
            422,
            "invalid-input",
            "Invalid input",
            "The request contains a value that can't be stored.",
        ), {}
    return None


def _has_status(error: DurableAgentsError) -> bool:
    return any("status" in vars(kind) for kind in type(error).__mro__[: type(error).__mro__.index(DurableAgentsError)])


def unreadable(error: Exception) -> dict[str, Any]:
    """Return the document for an unreadable request.

    Only a BadRequest's message is shown to the sender: other messages name settings or repeat the input.
    """
    match error:
        case RequestDataTooBig():
            return document(413, "too-large", "Too large", "The body is larger than the limit for this address.")
        case TooManyFieldsSent():
            most = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
            what = f"The form or query string has too many fields: at most {most} are accepted."
        case TooManyFilesSent():
            what = "The form contains files, which are not accepted."
        case MultiPartParserError():
            what = "The form is malformed and could not be decoded."
        case BadRequest():
            what = str(error)
        case _:
            what = "The request could not be parsed."
    return document(400, "malformed", "Malformed request", what)


def busy() -> dict[str, Any]:
    """Return the document for a server at capacity, which, unlike an unavailable database, is not a fault."""
    error = Busy()
    return document(error.status, error.code, error.title, error.detail)


def _outage(error: BaseException) -> dict[str, Any]:
    """Return the document for a write that was refused or got no answer, and reconnect if the server is read-only."""
    if pressure.is_busy(error):
        pressure.busy_notice.note()
        return busy()
    if pressure.takes_no_writes(error):
        pressure.no_writes_notice.note(first_line(error))
        pressure.renew_connections()
        return _read_only()
    if isinstance(error, ContentUnavailable):
        pressure.content_notice.note(first_line(error))
        return _key_missing() if isinstance(error, KeyMissing) else _store_away()
    pressure.outage_notice.note(first_line(error))
    return _unavailable()


def _read_only() -> dict[str, Any]:
    return document(
        503,
        "database-read-only",
        "The database is read-only",
        "The database is read-only at the moment: it is a standby, or its disk is full. Nothing was changed, and "
        "reading works. Try again in a moment.",
    )


def _key_missing() -> dict[str, Any]:
    return document(
        503,
        "key-unavailable",
        "An encryption key is missing",
        "This server has no access to a required encryption key. Nothing was changed. Ask an administrator: "
        "the server's log names the key.",
    )


def _store_away() -> dict[str, Any]:
    return document(
        503,
        "store-unavailable",
        "Large values can't be read or stored",
        "This server has no access to the store of large values. Nothing was changed. Ask an administrator: the "
        "server's log has the reason.",
    )


def _unavailable() -> dict[str, Any]:
    return document(
        503,
        "database-unavailable",
        "The database does not answer",
        "The database does not answer. Acknowledged data is safe, and runs continue when the database is back. "
        "Try again in a moment.",
    )


def _from_framework(error: exceptions.APIException) -> tuple[dict[str, Any], dict[str, str]]:
    status = error.status_code
    code = next(
        (name for kind, name in _CODES.items() if isinstance(error, kind)),
        str(error.default_code).replace("_", "-"),
    )
    title = {400: "Malformed request", 401: "Not authenticated", 403: "Not allowed"}.get(
        status, HTTPStatus(status).phrase
    )
    detail = error.detail if isinstance(error.detail, str) else json.dumps(error.detail, default=str)
    if hint := _HINTS.get(type(error)):
        detail = f"{detail} {hint}"
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
    if getattr(error, "wait", None):
        headers["Retry-After"] = f"{error.wait:.0f}"  # type: ignore[attr-defined]
    return document(status, code, title, str(detail)), headers


# --- outside DRF: unknown URLs, and uncaught exceptions ---------------------------


@csrf_exempt
def unknown_address(request: HttpRequest) -> HttpResponse:
    """Answer a request to an unknown API URL. An id that is not a UUID is answered like the id of a missing object."""
    parts = request.path.removeprefix("/api/v1/").split("/")
    for name, given in zip(parts[::2], parts[1::2], strict=False):
        if name in _WITH_IDS and given and not _is_uuid(given):
            error = NotFound(_WITH_IDS[name], given)
            return _answer(document(error.status, error.code, error.title, error.detail))
    return _answer(_no_such_address())


def _no_such_address() -> dict[str, Any]:
    detail = "This URL does not exist. See docs/reference/http-api.md or GET /api/schema for those that do."
    return document(404, "not-found", "Not found", detail)


# Lists whose entries have UUIDs, with the name of an entry.
_WITH_IDS = {
    "answers": "question",
    "approvals": "approval",
    "bulk": "batch",
    "changes": "change",
    "fleet": "process",
    "halts": "halt",
    "runs": "run",
    "schedules": "schedule",
}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def handler400(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer an unreadable request: 400, or 413 if it is too large."""
    problem = unreadable(exception)
    return _answer(problem) if _is_api(request) else HttpResponse(page("400.html", problem), status=problem["status"])


def handler403(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _is_api(request):
        return defaults.permission_denied(request, exception)
    return _answer(document(403, "forbidden", "Not allowed", "None of your roles allows this."))


def handler404(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return unknown_address(request) if _is_api(request) else defaults.page_not_found(request, exception)


def handler500(request: HttpRequest) -> HttpResponseBase:
    """Answer an uncaught exception.

    A lost database and an overloaded server get their own responses; any other exception is a bug.
    """
    error = sys.exc_info()[1]
    if error is not None and pressure.is_outage(error):
        problem = _outage(error)
    elif isinstance(error, Busy):
        problem = busy()
    elif _is_api(request):
        bug = "This is a bug in the server and was logged. The request was rolled back."
        return _answer(document(500, "internal-error", "Internal error", bug))
    else:
        return defaults.server_error(request)
    answer = _answer(problem) if _is_api(request) else _page_to_send_again(request, problem)
    answer["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return answer


def _page_to_send_again(request: HttpRequest, problem: dict[str, Any]) -> HttpResponse:
    """Return a page with a link to the requested URL, or with a form that holds the input."""
    again = request.get_full_path() if request.method in ("GET", "HEAD") else ""
    content = page("503.html", problem, again, to=request.get_full_path(), fields=_fields_sent(request))
    answer = HttpResponse(content, status=503)
    answer["Cache-Control"] = "no-store"
    return answer


def _fields_sent(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the submitted fields for a retry form; none if unreadable or if a field is secret.

    The CSRF token is the submitted one, so another site's form is refused again.
    """
    try:
        fields = [(name, str(value)) for name, values in request.POST.lists() for value in values]
    except (BadRequest, MultiPartParserError, SuspiciousOperation):
        return []
    return [] if any(_SECRET.search(name) for name, _ in fields) else fields


_SECRET = re.compile("password|code|secret|(?<!^csrfmiddleware)token|credential")


def page(
    template: str, problem: dict[str, Any], again: str = "/", to: str = "", fields: Sequence[tuple[str, str]] = ()
) -> str:
    """Render a problem for people, even without templates.

    `again` is the URL to retry. A submitted form has `fields` and the URL `to`; without fields, only the previous page
    still has the input.
    """
    try:
        context = {"problem": problem, "again": again, "to": to, "fields": fields}
        return loader.get_template(template).render(context)
    except TemplateDoesNotExist:
        return f"<!doctype html><title>{problem['title']}</title><p>{problem['detail']}"


def _answer(body: dict[str, Any]) -> HttpResponse:
    answer = HttpResponse(json.dumps(body), status=body["status"], content_type=CONTENT_TYPE)
    answer["Cache-Control"] = "no-store"
    return answer


def _is_api(request: HttpRequest) -> bool:
    return is_for_programs(request.path_info)


def is_for_programs(path: str) -> bool:
    """Return whether this URL is for programs. Programs get a problem document, people get a page."""
    return f"{path}/".startswith("/api/") or path in ("/healthz", "/readyz", "/metrics")
