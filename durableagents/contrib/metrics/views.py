"""`GET /metrics`, for Prometheus."""

from __future__ import annotations

from hmac import compare_digest
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from rest_framework.authentication import get_authorization_header
from rest_framework.request import Request

from durableagents.contrib.metrics import scraping
from ledger.web.api_base import ApiView
from ledger.web.roles import AUDITOR, OPERATOR


class Metrics(ApiView):
    """All metrics in Prometheus's text format.

    They can be read with the token in the settings, which grants nothing else and needs no database, or with an API
    key. The settings can allow loopback clients without either."""

    roles = {"GET": (OPERATOR, AUDITOR)}
    # Requests are not limited per API key, because that looks up the key in the database, and a scraper has none.
    throttle_classes = ()

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Answer a scrape. Raises MetricsUnavailable."""
        return HttpResponse(scraping.scrape(), content_type=CONTENT_TYPE_PLAIN_0_0_4)

    def perform_authentication(self, request: Request) -> None:
        """Look for a key or session, unless the caller is a recognized scraper."""
        if not _is_scraper(request):
            super().perform_authentication(request)

    def check_permissions(self, request: Request) -> None:
        """Require a role, unless the caller is a recognized scraper."""
        if not _is_scraper(request):
            super().check_permissions(request)


def _is_scraper(request: Request) -> bool:
    token = settings.DURABLEAGENTS.metrics_token.encode()
    scheme, _, credential = get_authorization_header(request).partition(b" ")
    if token and scheme.lower() == b"bearer" and compare_digest(credential.strip(), token):
        return True
    # A reverse proxy on this host also connects from loopback, and would give everybody access. Its requests are
    # recognized by the headers it adds.
    is_direct = not credential and not any(name in request.headers for name in ("X-Forwarded-For", "Forwarded", "Via"))
    return settings.DURABLEAGENTS.metrics_open_to == "loopback" and is_direct and _is_loopback(request)


def _is_loopback(request: Request) -> bool:
    try:
        return ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
