"""Files that a page offers where it shows only the head of a value."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from django.utils.http import content_disposition_header

# The browser saves the file: it neither runs nor renders nor keeps what is in it.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def json_file(value: Any, name: str) -> HttpResponse:
    """Return a value as a JSON file of that name."""
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")
    response = HttpResponse(text, content_type="application/json", headers=HEADERS)
    response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    return response
