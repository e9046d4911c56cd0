"""Refuses a query string that is no text, before anything looks for the replacement characters it would be read as."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin


class ReadableQuery(MiddlewareMixin):
    """Answers 400 to a query string whose percent-encoded bytes are not UTF-8 (`?agent=%ff`)."""

    def process_request(self, request: HttpRequest) -> None:
        try:
            unquote_to_bytes(request.META.get("QUERY_STRING", "")).decode()
        except UnicodeDecodeError:
            raise BadRequest("The query string holds percent-encoded bytes that are not UTF-8.") from None
