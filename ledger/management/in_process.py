"""Call the HTTP API in a command's own process, as a named account, with the same rights and records."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.core.handlers.wsgi import WSGIRequest
from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connection
from django.urls import resolve

from ledger.actors import os_account
from ledger.web import problems
from ledger.web.roles import STRENGTH
from ledger.web.seeing.viewers import asking

# Exit codes of the commands that use this (docs/reference/cli.md).
INVALID, NOT_ALLOWED, NOT_FOUND, CONFLICT, UNAVAILABLE = 2, 3, 4, 5, 6
_CODES = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 409: CONFLICT, 410: CONFLICT, 412: CONFLICT}
_TOO_MANY = 429


# Details that begin like this only name fields, so the errors of the fields are added; other details are complete.
_NAMES_FIELDS = ("Fill in:", "Check these fields:", "The body is not valid")
_OWN_CODES = {INVALID: (400, "malformed"), NOT_ALLOWED: (403, "forbidden"), UNAVAILABLE: (503, "database-unavailable")}


class Refusal(CommandError):
    """The API refused a request. `document` is its problem document."""

    def __init__(self, text: str, document: Mapping[str, Any], returncode: int) -> None:
        super().__init__(text, returncode=returncode)
        self.document = document


class ApiCommand(BaseCommand):
    """A command that needs the database. With `--json` it writes refusals to stderr as problem documents."""

    def execute(self, *args: Any, **options: Any) -> Any:
        """Connect before the system checks run, since each of them would wait for an unresponsive database."""
        try:
            try:
                connection.ensure_connection()
            except Error as error:
                raise away(error) from error
            return super().execute(*args, **options)
        except CommandError as refusal:
            if not options.get("json"):
                raise
            status, code = _OWN_CODES.get(refusal.returncode, (400, "malformed"))
            own = problems.document(status, code, "Not done", str(refusal))
            print(json.dumps(getattr(refusal, "document", own)), file=options.get("stderr") or sys.stderr)
            raise SystemExit(refusal.returncode) from None


class Caller:
    """The account under which a command acts.

    Its acts are recorded with `command` as authentication, and the operating system's account as address.
    """

    def __init__(self, name: str) -> None:
        """Look up the account. Raises CommandError if it is unknown or closed."""
        try:
            self.user = get_user_model().objects.filter(username=name).first()
        except Error as error:
            raise away(error) from error
        if self.user is None or not self.user.is_active:
            problem = "no account is named" if self.user is None else "the account is closed:"
            raise CommandError(f"--as: {problem} {name!r}", returncode=NOT_ALLOWED)

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET and return the API's answer. Raises CommandError for a refusal."""
        return self._ask("GET", path, query=urlencode({k: v for k, v in query.items() if v not in (None, "")}))

    def post(self, path: str, body: Mapping[str, Any], *, key: str = "") -> Any:
        """Send a POST and return the API's answer; with an idempotency `key`, it acts at most once.

        Raises CommandError.
        """
        return self._ask("POST", path, body=json.dumps(body).encode(), key=key)

    def _ask(self, method: str, path: str, *, query: str = "", body: bytes = b"", key: str = "") -> Any:
        request: Any = WSGIRequest(
            {
                "REQUEST_METHOD": method,
                "PATH_INFO": f"/api/v1/{path}",
                "QUERY_STRING": query,
                "CONTENT_TYPE": "application/json",
                "CONTENT_LENGTH": str(len(body)),
                "SERVER_NAME": "localhost",
                "SERVER_PORT": "443",
                "wsgi.url_scheme": "https",
                "REMOTE_ADDR": f"os:{os_account()}",
                "wsgi.input": BytesIO(body),
            }
            | ({"HTTP_IDEMPOTENCY_KEY": key} if key else {})
        )
        request.user = request._force_auth_user = self.user
        request.session = {STRENGTH: "command"}
        found = resolve(request.path_info)
        try:
            with asking(request):
                answer = found.func(request, *found.args, **found.kwargs)
                if hasattr(answer, "render"):
                    answer.render()
                document = json.loads(answer.content)
        except Error as error:
            raise away(error) from error
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            raise _refusal(answer.status_code, document)
        return document


def away(error: Exception) -> CommandError:
    connection.close()
    return CommandError(f"the database doesn't answer: {str(error).splitlines()[0]}", returncode=UNAVAILABLE)


def _refusal(status: int, document: Mapping[str, Any]) -> CommandError:
    detail = str(document.get("detail", document.get("title", status)))
    errors = ""
    if detail.startswith(_NAMES_FIELDS):
        errors = "; ".join(f"{each['field']} {each['problem']}" for each in document.get("errors", []))
    is_later = status == _TOO_MANY or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    text = inert(f"{detail} {errors}".strip())
    return Refusal(text, document, UNAVAILABLE if is_later else _CODES.get(status, INVALID))


def add_caller(parser: ArgumentParser) -> None:
    parser.add_argument("--as", dest="as_user", default="", metavar="USER", help="the account that asks or acts")
    parser.add_argument("--json", action="store_true", help="print the API's answer, in one line")


def caller_of(options: Mapping[str, Any]) -> Caller:
    """Return the account named by `--as`.

    Raises CommandError without one: access to the server is not enough to act.
    """
    if not options["as_user"]:
        raise CommandError("--as: name the account that asks or acts", returncode=INVALID)
    return Caller(options["as_user"])


def inert(value: Any) -> str:
    """Return a value as printable ASCII, so that untrusted text can't control the terminal."""
    text = json.dumps(value)
    return text[1:-1].replace('\\"', '"') if isinstance(value, str) else text


def output_lines(document: Any, options: Mapping[str, Any], columns: Sequence[str]) -> Iterator[str]:
    """Yield output lines: the document as JSON, or one line per result with these columns, or one line per field."""
    if options["json"]:
        yield json.dumps(document)
    elif "results" in document:
        for row in document["results"]:
            yield "  ".join(inert(row.get(column)) for column in columns)
    else:
        for name in columns:
            yield f"{name:12} {inert(document.get(name))}"
