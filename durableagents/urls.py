"""All URLs. The API's last route answers unknown URLs with a problem document."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import include, path, re_path

from durableagents import openapi
from durableagents.admin import sign_in
from durableagents.identity.me import Me
from durableagents.server import health
from durableagents.urls_apps import of_apps
from ledger.web import problems

api_v1: list[Any] = [
    path("me", Me.as_view(), name="api-me"),
    path("", include("runs.api.urls")),
    path("", include("approvals.api.urls")),
    path("", include("ledger.api.urls")),
    *of_apps("api_urls"),
]

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    *of_apps("root_urls"),
    path("api/v1/", include(api_v1)),
    path("api/schema", openapi.Schema.as_view(), name="api-schema"),
    re_path(r"^api(?:/.*)?$", problems.unknown_address, name="api-unknown"),
    path("admin/login/", sign_in),
    path("admin/", admin.site.urls),
    path("", include("durableagents.urls_console")),
]

handler400 = "ledger.web.problems.handler400"
handler403 = "ledger.web.problems.handler403"
handler404 = "ledger.web.problems.handler404"
handler500 = "ledger.web.problems.handler500"
