"""Render JSON: documented shapes with the fields that were set, everything else as Django REST framework does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import JSONRenderer
from rest_framework.utils.encoders import JSONEncoder

from ledger.web.shapes import Shape

# Headers that make the browser save the file instead of running, rendering or caching it.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ShapeEncoder(JSONEncoder):
    def default(self, obj: Any) -> Any:
        return obj.shown() if isinstance(obj, Shape) else super().default(obj)


class ShapeRenderer(JSONRenderer):
    encoder_class = ShapeEncoder


class EscapingRenderer(ShapeRenderer):
    ensure_ascii = True


class AnyTextRenderer(ShapeRenderer):
    """Escapes lone surrogates, which UTF-8 can't encode.

    Only damaged rows contain them, and the rest of the response is still correct.
    """

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        try:
            text: bytes = super().render(data, accepted_media_type, renderer_context)
        except UnicodeEncodeError:
            text = EscapingRenderer().render(data, accepted_media_type, renderer_context)
        return text
