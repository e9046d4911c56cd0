"""The shared parts of all API views: one view class, strict bodies, strict queries, pages.

Authentication and problem documents come from settings (`durableagents.identity.auth`, `ledger.web.problems`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from hashlib import sha256
from types import MappingProxyType
from typing import Any, ClassVar, Literal
from uuid import UUID

from django.db import connection, transaction
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger.actors import Actor
from ledger.errors import Busy, DurableAgentsError, InvalidInput, TooLarge
from ledger.web import cursors, strict_json
from ledger.web.bodies import Body, does_not_fit, fit, unstorable
from ledger.web.renderers import AnyTextRenderer
from ledger.web.roles import EVERY, HasRole, actor
from ledger.web.seeing.viewers import must_see
from ledger.web.shapes import Problem, Shape

DEFAULT_LIMIT, MAX_LIMIT = 100, 1000
MAX_SEQ = 2**63 - 1


# Parsing JSON holds the GIL: parsing more at once would not be faster and would slow down all other requests.
_LARGE_BYTES = 32 * 1024
_READERS = threading.BoundedSemaphore(2)
_READER_WAITS_SECONDS = 2.0


class StrictJSONParser(BaseParser):
    """Parse at most `most_bytes` of storable I-JSON (see strict_json). Only a few large bodies are parsed at a time."""

    media_type = "application/json"
    # Exact for our own bodies. Numbers from other systems are accepted as they are, because those systems can't send
    # them as text.
    has_to_be_exact: ClassVar[bool] = True
    most_bytes: ClassVar[int] = strict_json.MAX_BYTES

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        body = stream.read(self.most_bytes + 1)
        if len(body) > self.most_bytes:
            raise TooLarge("body", self.most_bytes)
        if not body:
            return {}
        if len(body) < _LARGE_BYTES:
            return self._read(body)
        if not _READERS.acquire(timeout=_READER_WAITS_SECONDS):
            raise Busy("Other large bodies are being read")
        try:
            return self._read(body)
        finally:
            _READERS.release()

    def _read(self, body: bytes) -> Any:
        try:
            value = strict_json.loads(body)
        except strict_json.MalformedJSON as error:
            raise ParseError(str(error)) from None
        if strict_json.is_doubtful(body) and (errors := unstorable(value, has_to_be_exact=self.has_to_be_exact)):
            raise does_not_fit(errors)
        return value


class AlwaysJSON(BaseContentNegotiation):
    """Always choose the only representation, so that no `Accept` is refused.

    RFC 9110 §12.5.1 leaves this to the server.
    """

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        kind = (request.content_type or "").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type in (kind, "*/*")), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        (only,) = renderers
        return only, str(only.media_type)


class ApiView(APIView):
    """Base of every API view. `roles` names the roles allowed per method; without it nothing is allowed."""

    roles: ClassVar[Mapping[str, Sequence[str]]] = {}
    acting_role: str | None = None
    rate_headers: Mapping[str, str] = MappingProxyType({})
    # The view's GET returns an ETag; POSTs that declare the header accept it as `If-Match`.
    versioned: ClassVar[bool] = False
    # Members of the response that change by themselves; the ETag does not cover them.
    unversioned: ClassVar[frozenset[str]] = frozenset()
    http_method_names = ["get", "head", "post"]
    permission_classes: Sequence[type[BasePermission]] = [HasRole]
    parser_classes: Sequence[type[BaseParser]] = [StrictJSONParser]
    renderer_classes: Sequence[type[BaseRenderer]] = [AnyTextRenderer]
    content_negotiation_class = AlwaysJSON

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Set the length of a chunked request, which DRF would treat as an empty body."""
        if not request.META.get("CONTENT_LENGTH"):
            request.META["CONTENT_LENGTH"] = str(len(request.body))
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check that the caller may see the run before anything else about the request is checked.

        Raises NotFound, and ParseError for an `If-Match` header that the view does not support.
        """
        super().initial(request, *args, **kwargs)
        method = str(request.method).lower()
        if "run_id" in kwargs and method in self.http_method_names and hasattr(self, method):
            must_see(kwargs["run_id"])
        handler = getattr(self, method, None) if method == "post" and "If-Match" in request.headers else None
        if handler is not None and not getattr(handler, "takes_if_match", False):
            raise ParseError("If-Match: this URL has no ETag. Send the request without the header.")

    def unless_changed(self, request: Request, act: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        """Run `act`; with `If-Match`, only if the object still matches it. Raises Changed."""
        if "If-Match" not in request.headers:
            return act()
        with transaction.atomic(), connection.cursor() as cursor:
            # Requests with `If-Match` to the same URL run one after another.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [request.path])
            if not is_matched(request, self._etag(self.current(request, *args, **kwargs))):
                raise Changed
            return act()

    def current(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return the object's current state, to compare its ETag with `If-Match`. Raises NotFound, Changed."""
        return self.get(request, *args, **kwargs).data  # type: ignore[attr-defined]

    def _etag(self, data: Any) -> str:
        if self.unversioned:
            members = data.shown() if isinstance(data, Shape) else data
            data = {name: value for name, value in members.items() if name not in self.unversioned}
        return etag_of(data)

    @property
    def by(self) -> Actor:
        """Return the caller with the role that allowed the request."""
        return actor(self.request, self.acting_role or "")

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Forbid caching, because a response is valid only at one time and for one caller."""
        final = super().finalize_response(request, response, *args, **kwargs)
        if self.versioned and request.method == "GET" and final.status_code == 200:
            final.headers["ETag"] = self._etag(final.data)
        final.headers.setdefault("Cache-Control", "no-store")
        for name, value in self.rate_headers.items():
            final.headers[name] = value
        return final


READ = {"GET": EVERY}

_PROBLEMS = {
    400: "The request is malformed",
    401: "The key is missing or invalid",
    403: "None of your roles allows this",
    404: "No such object, or you don't have access to it",
    409: "The current state does not allow this",
    410: "The content was erased or archived",
    412: "The object has changed since you read it: see If-Match",
    413: "The body is larger than 1 MiB (65 MiB when starting a run)",
    415: "The body is not JSON",
    422: "The input is invalid: see `errors`",
    429: "Too many requests with this key: try again after Retry-After seconds",
    503: "Busy, or the database does not answer: try again after Retry-After seconds",
}


def described(
    summary: str | Mapping[str, str],
    answer: Any,
    *,
    about: Mapping[str, str] | None = None,
    status: int = 200,
    also: Sequence[int] = (),
    body: Any = None,
    query: Sequence[str | OpenApiParameter] = (),
    headers: Sequence[str] = (),
    name: str | None = None,
    kinds: Sequence[str] = ("application/json",),
    is_repeatable: bool = True,
) -> Callable[[Any], Any]:
    """Describe a view's method for OpenAPI, and make a POST repeatable with `Idempotency-Key`.

    Views that list this header in `headers` handle it themselves; without `is_repeatable` it is ignored.

    `summary` is one text, or one for each `action` that routes assign to the view; then `about` describes each action.
    `query` lists names of `PARAMETERS`, or `OpenApiParameter` objects. `kinds` are the response's media types; `name`
    is the operation id if it can't be derived from the path. `also` lists further status codes.
    """
    can_go_wrong = [400, 401, 403, 404, 410, 422, 429, 503] if body is None else list(_PROBLEMS)
    can_go_wrong += [each for each in also if each >= 400]
    answers_itself = "Idempotency-Key" in headers or not is_repeatable
    if body is not None and not answers_itself:
        headers = (*headers, "Idempotency-Key")
    parameters = [
        *(each if isinstance(each, OpenApiParameter) else PARAMETERS[each] for each in query),
        *(PARAMETERS[each] for each in headers),
    ]
    problems = {
        (code, "application/problem+json"): OpenApiResponse(Problem, description=_PROBLEMS[code])
        for code in can_go_wrong
    }
    answers = [status, *(each for each in also if each < 400)]
    by_action = summary if isinstance(summary, Mapping) else {}
    schema = extend_schema(
        operation_id=name,
        summary=None if by_action else str(summary),
        request=body,
        parameters=parameters,
        responses={**{(each, kind): answer for each in answers for kind in kinds}, **problems},
    )

    def describe(method: Any) -> Any:
        if body is not None and not answers_itself:
            method = _repeatable(method)
        method.summaries, method.about = by_action, about or {}
        method.takes_if_match = "If-Match" in headers
        return schema(method)

    return describe


# Answers a request that has an Idempotency-Key: (request, the requested body, act). Set by the app that stores the
# answers.
_once: list[Callable[[Request, Any, Callable[[], tuple[int, Any]]], HttpResponseBase]] = []


def answer_repeats_by(once: Callable[[Request, Any, Callable[[], tuple[int, Any]]], HttpResponseBase]) -> None:
    _once[:] = [once]


def _repeatable(method: Any) -> Any:
    @wraps(method)
    def post(self: ApiView, request: Request, *args: Any, **kwargs: Any) -> Any:
        if "Idempotency-Key" not in request.headers:
            return self.unless_changed(request, lambda: method(self, request, *args, **kwargs), *args, **kwargs)

        def act() -> tuple[int, Any]:
            answer = self.unless_changed(request, lambda: method(self, request, *args, **kwargs), *args, **kwargs)
            return answer.status_code, answer.data

        return _once[0](request, {"act": request.get_full_path(), "body": request.data}, act)

    return post


class Changed(DurableAgentsError):
    """`If-Match` names a state other than the object's current one."""

    status, code, title = 412, "changed", "Changed meanwhile"

    def __init__(self) -> None:
        super().__init__("The object has changed since you read it, so nothing was done. Read it again, then decide.")


def etag_of(data: Any) -> str:
    """Return the entity tag of a response about an object."""
    return f'"{sha256(AnyTextRenderer().render(data)).hexdigest()[:32]}"'


def is_matched(request: Request, etag: str) -> bool:
    """Return whether the request may act on this state: it has no `If-Match`, or one that matches."""
    given = request.headers.get("If-Match")
    return given is None or given.strip() == "*" or etag in [each.strip() for each in given.split(",")]


def _parameters(
    place: Literal["query", "header"], described: Mapping[str, tuple[Any, str]]
) -> dict[str, OpenApiParameter]:
    return {name: OpenApiParameter(name, kind, place, description=text) for name, (kind, text) in described.items()}


PARAMETERS = {
    **_parameters(
        "header",
        {
            "Idempotency-Key": (str, "Your own key. A repeated request with the same key returns the first response."),
            "If-Match": (str, "ETag of the state that you saw; nothing is done if the object has changed since."),
        },
    ),
    **_parameters(
        "query",
        {
            "action": (str, "Only acts with this name."),
            "after": (int, "Only entries after this number; follow `next` for the next page."),
            "agent": (str, "Only entries about this agent, with or without @version."),
            "before": (int, "Only entries before this number; follow `next` for the next page."),
            "by": (str, "Only acts by this actor."),
            "cause": (str, "Only recoveries with this cause."),
            "cursor": (str, "Position in the list; follow `next` for the next page."),
            "fields": (str, "Comma-separated names of fields: the response contains only these."),
            "from": (str, "Only acts at or after this time."),
            "host": (str, "Only recoveries from workers of this host."),
            "hours": (int, "Working hours of the example deadlines; default 8."),
            "level": (str, "Only lines of this level."),
            "limit": (int, f"Maximum number of entries on a page, up to {MAX_LIMIT}; default {DEFAULT_LIMIT}."),
            "outcome": (str, "Only runs with this outcome, or `left` for those not processed yet."),
            "q": (str, "Only runs with these words in subject, tags, input, starter or ids."),
            "queue": (str, "Only entries of this queue."),
            "run": (UUID, "Only entries of this run."),
            "run_id": (UUID, "Only entries of this run."),
            "sort": (str, "Attribute to order by: `amount` ascending, `-amount` descending."),
            "state": (str, "Only entries in this state."),
            "to": (str, "Only acts before this time."),
            "version": (str, "Version of the new run; default: the run's own."),
            "visit": (int, "Visit to preview; default: none."),
            "wait": (int, "Seconds to wait for the answer; default: 0."),
            "where": (str, "Condition on attributes, such as `amount > 100`."),
        },
    ),
}


def is_empty(request: Request) -> bool:
    """Return whether the request came without a body."""
    return request.META["CONTENT_LENGTH"].strip() in ("", "0")


# --- bodies -----------------------------------------------------------------------------------


def read_body(request: Request, shape: type[Body]) -> Body:
    """Return the request's body as `shape`. Raises InvalidInput naming every wrong field."""
    data = request.data
    if isinstance(data, QueryDict):
        data = {}
    if not isinstance(data, dict):
        raise InvalidInput(
            "The body must be a JSON object.",
            errors=[{"field": "", "problem": f"is {_json_type(data)}", "fix": "send an object"}],
        )
    return fit(shape, data)


MAX_TEXT_LENGTH = 500  # limit for a query parameter


def _json_type(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


# --- queries and pages --------------------------------------------------------------------------


class Query:
    """The query string, checked: an unknown or repeated name is refused, not ignored."""

    def __init__(self, request: Request, *known: str) -> None:
        self._request = request
        self._values = request.query_params.copy()
        allowed = {*known, "limit"}
        for name, given in self._values.lists():
            if name not in allowed:
                raise ParseError(f"Unknown query parameter {name[:60]!r}. Known here: {', '.join(sorted(allowed))}.")
            if len(given) > 1:
                raise ParseError(f"Query parameter {name!r} is given {len(given)} times; give it once.")
        if cursor := self._values.get("cursor"):
            # Positions look the same in all lists, so each cursor names its list.
            place, _, mark = cursor.rpartition("~")
            if mark != self._mark:
                raise no_cursor("cursor")
            self._values["cursor"] = place
        self.limit = self.integer("limit", default=DEFAULT_LIMIT, lowest=1, highest=MAX_LIMIT)

    def text(self, name: str) -> str | None:
        """Return the value, or None if absent or empty. Raises ParseError if too long or if it can't be stored."""
        value = self._values.get(name) or None
        if value is not None and "\x00" in value:
            raise ParseError(f"Query parameter {name!r} contains a NUL character. Leave it out.")
        if value is not None and len(value) > MAX_TEXT_LENGTH:
            raise ParseError(f"Query parameter {name!r} has {len(value)} characters; the limit is {MAX_TEXT_LENGTH}.")
        return value

    def choice(self, name: str, allowed: Sequence[str]) -> str | None:
        value = self.text(name)
        if value is not None and value not in allowed:
            raise ParseError(f"Unknown {name} {value[:60]!r}. Known: {', '.join(allowed)}.")
        return value

    def choices(self, name: str, allowed: Sequence[str]) -> list[str]:
        """Return the comma-separated values."""
        value = self.text(name)
        found = value.split(",") if value else []
        if unknown := [each for each in found if each not in allowed]:
            raise ParseError(f"Unknown {name} {unknown[0][:60]!r}. Known: {', '.join(allowed)}.")
        return found

    def time(self, name: str) -> datetime | None:
        value = self.text(name)
        try:
            found = datetime.fromisoformat(value) if value else None
        except ValueError:
            found = None
        if value and (found is None or found.tzinfo is None):
            raise ParseError(f"Query parameter {name!r} must be a time with its zone, such as 2026-11-21T06:10:24Z.")
        return found

    def integer(self, name: str, *, default: int, lowest: int, highest: int) -> int:
        value = self._values.get(name)
        if value is None or value == "":
            return default
        if not re.fullmatch(r"[0-9]{1,19}", value, re.ASCII) or not lowest <= int(value) <= highest:
            raise ParseError(f"Query parameter {name!r} must be an integer from {lowest} to {highest}.")
        return int(value)

    def uuid(self, name: str) -> UUID | None:
        value = self.text(name)
        try:
            return UUID(value) if value else None
        except ValueError:
            raise ParseError(f"Query parameter {name!r} must be a UUID.") from None

    def moment(self, name: str = "cursor") -> tuple[datetime, UUID] | None:
        """Return the position at which a list ordered by time and id continues."""
        value = self.text(name)
        if value is None:
            return None
        place = cursors.opened(value)
        if place is None:
            raise no_cursor(name)
        return place

    def placed(self, name: str = "cursor") -> tuple[datetime, int] | None:
        """Return the position at which a list continues that is ordered by time and row number."""
        value = self.text(name)
        found = None if value is None else cursors.placed_at(value)
        if value is not None and found is None:
            raise no_cursor(name)
        return found

    def place(self, name: str = "cursor") -> tuple[int, int] | None:
        """Return the position in a list ordered by the journal: an event, and how many of its rows were shown."""
        value = self.text(name)
        if value is None:
            return None
        numbers = cursors.numbers_of(value, 18, 9)
        if numbers is None:
            raise no_cursor(name)
        seq, nth = numbers
        return seq, nth

    def page(
        self,
        rows: Sequence[Any],
        place: Callable[[Any], dict[str, str]],
        show: Callable[[Any], Any],
    ) -> Response:
        """Return one page of `rows`, up to limit + 1.

        `place` returns, for the last row, the query parameters of the next page.
        """
        page_rows = rows[: self.limit]
        following = self._url(place(page_rows[-1])) if len(rows) > self.limit else None
        return Response({"results": [show(row) for row in page_rows], "next": following})

    def stretch(self, rows: Sequence[Any], following: dict[str, str] | None) -> Response:
        """Return a page with the given query parameters for the next one."""
        return Response({"results": list(rows), "next": self._url(following) if following else None})

    @property
    def _mark(self) -> str:
        """Return a short digest of the list's URL and filters."""
        filters = sorted(pair for pair in self._values.items() if pair[0] not in ("cursor", "limit", "fields"))
        return sha256(repr((self._request.path, filters)).encode()).hexdigest()[:8]

    def _url(self, changed: dict[str, str]) -> str:
        values = self._values.copy()
        for name, value in changed.items():
            values[name] = f"{value}~{self._mark}" if name == "cursor" else value
        return self._request.build_absolute_uri(f"{self._request.path}?{values.urlencode()}")


def no_cursor(name: str) -> ParseError:
    """Return the error for a cursor that is truncated, made up, or from another list."""
    return ParseError(f"Query parameter {name!r} is not a cursor of this list; use the value of `next` unchanged.")
