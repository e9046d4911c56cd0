"""Refuses a query string or a form that is no text, before anything looks for what it would be read as."""

from __future__ import annotations

import codecs
from urllib.parse import unquote_to_bytes

from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class ReadableQuery(MiddlewareMixin):
    """Answers 400 to a query string whose percent-encoded bytes are not UTF-8 (`?agent=%ff`), and to a form that says
    that it is in another encoding."""

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
