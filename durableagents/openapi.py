"""The API described by itself: OpenAPI 3.1, generated from the views."""

from __future__ import annotations

from functools import cache
from typing import Any

from drf_spectacular.authentication import SessionScheme as Session
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, described


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the description names our keys."""

    target_class = "durableagents.identity.auth.ApiKeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key."}


class SessionScheme(Session):
    """How the description names a browser's session."""

    target_class = "durableagents.identity.auth.HeaderSession"


class Schema(ApiView):
    """The description itself."""

    roles = READ

    @described("Describe the API", dict)
    def get(self, request: Request) -> Response:
        return Response(description())


@cache
def description() -> dict[str, Any]:
    """The whole document. It can't change while the process lives."""
    return SchemaGenerator().get_schema(request=None, public=True)
