"""Refuses a query string or a form that is no text, before anything looks for what it would be read as."""

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
    """Answers 400 to a query string whose percent-encoded bytes are not UTF-8 (`?agent=%ff`), to a form that says that
    it is in another encoding, and to one whose texts are not UTF-8."""

    def process_request(self, request: HttpRequest) -> None:
        named = request.encoding
        if request.content_type in _FORMS and named is not None:
            # Django stumbles over it wherever the form is looked at, which a page that says so does too.
            request.encoding = "utf-8"
            if codecs.lookup(named).name != "utf-8":
                raise BadRequest("A form has to be in UTF-8.")
        try:
            unquote_to_bytes(request.META.get("QUERY_STRING", "")).decode()
        except UnicodeDecodeError:
            raise BadRequest("The query string holds percent-encoded bytes that are not UTF-8.") from None

    def process_view(self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Django takes what is no text as U+FFFD, and the record would say that a person wrote that."""
        if request.method != "POST" or request.content_type not in _FORMS or getattr(view, "csrf_exempt", False):
            return  # the API and callbacks take no form
        try:
            for raw in _texts(request):
                raw.decode()
        except UnicodeDecodeError:
            raise BadRequest("The form holds bytes that are not UTF-8. Send its text in UTF-8.") from None


class _Dropped(FileUploadHandler):
    """What is done with a file that only lies beside what is looked at; with none, all of a form would be one piece."""

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        return None

    def file_complete(self, file_size: int) -> None:
        return None


def _texts(request: HttpRequest) -> Iterator[bytes]:
    """What has to be text of a form. A file need not be, so where there is one only the other parts are looked at."""
    raw = request.body
    has_files = bool(request.FILES)  # refuses what has too many fields, or can't be told apart
    if not has_files:
        yield raw
    if request.content_type != _PARTS:
        yield unquote_to_bytes(raw)  # whole signs by themselves: none is half escaped, as the rest is whole
        return
    # Once more, as bytes: a part may be in base64. The files go nowhere.
    fields, _ = MultiPartParser(request.META, BytesIO(raw), [_Dropped(request)], "latin-1").parse()
    for name, values in fields.lists():
        yield from (text.encode("latin-1") for text in (name, *values))
