"""Refuse query strings and forms that aren't UTF-8, before they are parsed."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from django.core.exceptions import BadRequest
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParser
from django.utils.deprecation import MiddlewareMixin

_PARTS = "multipart/form-data"
_FORMS = ("application/x-www-form-urlencoded", _PARTS)


class ReadableQuery(MiddlewareMixin):
    """Answers 400 to query strings whose encoded bytes aren't UTF-8 (`?agent=%ff`), and to forms in other encodings."""

    def process_request(self, request: HttpRequest) -> None:
        named = request.encoding
        if request.content_type in _FORMS and named is not None:
            # Django fails whenever it reads the form, even on an error page.
            request.encoding = "utf-8"
            if codecs.lookup(named).name != "utf-8":
                raise BadRequest("A form must be encoded in UTF-8.")
        try:
            unquote_to_bytes(request.META.get("QUERY_STRING", "")).decode()
        except UnicodeDecodeError:
            raise BadRequest("The query string contains percent-encoded bytes that are not UTF-8.") from None

    def process_view(self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Check that a form is UTF-8. Raises BadRequest.

        Django would replace invalid bytes with U+FFFD, and the record would quote that as the person's text.
        """
        if request.method != "POST" or request.content_type not in _FORMS or getattr(view, "csrf_exempt", False):
            return  # the API and callbacks take no forms
        try:
            for raw in _texts(request):
                raw.decode()
        except UnicodeDecodeError:
            raise BadRequest("The form contains bytes that are not UTF-8. Send its text in UTF-8.") from None


class _Dropped(FileUploadHandler):
    """Discards files while form fields are parsed.

    Without a handler, the parser would treat the whole form as one part.
    """

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        return None

    def file_complete(self, file_size: int) -> None:
        return None


def _texts(request: HttpRequest) -> Iterator[bytes]:
    """Yield the bytes of a form that must be text: everything, or in a form with files all other parts."""
    raw = request.body
    has_files = bool(request.FILES)  # refuses too many fields and forms that can't be parsed
    if not has_files:
        yield raw
    if request.content_type != _PARTS:
        yield unquote_to_bytes(raw)  # each is complete in itself, so no escape sequence spans two of them
        return
    # The form is parsed again as bytes, since parts may be in base64. Files are dropped.
    fields, _ = MultiPartParser(request.META, BytesIO(raw), [_Dropped(request)], "latin-1").parse()
    for name, values in fields.lists():
        yield from (text.encode("latin-1") for text in (name, *values))
