"""Every address there is. The API's last route answers what leads nowhere as a problem document."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path, re_path

from durableagents import health, openapi, problems
from durableagents.admin import sign_in

api_v1 = [
    path("", include("runs.urls_api")),
    path("", include("approvals.urls_api")),
    path("", include("ledger.urls_api")),
]

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("api/v1/", include(api_v1)),
    path("api/schema", openapi.Schema.as_view(), name="api-schema"),
    re_path(r"^api(?:/.*)?$", problems.unknown_address, name="api-unknown"),
    path("admin/login/", sign_in),
    path("admin/", admin.site.urls),
    path("", include("durableagents.urls_console")),
]

handler400 = "durableagents.problems.handler400"
handler403 = "durableagents.problems.handler403"
handler404 = "durableagents.problems.handler404"
handler500 = "durableagents.problems.handler500"
