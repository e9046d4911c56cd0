"""Every address there is. The API's last route answers what leads nowhere as a problem document."""

from __future__ import annotations

from django.urls import include, path, re_path

from durableagents import health, problems

api_v1 = [
    path("", include("runs.urls_api")),
    path("", include("approvals.urls_api")),
    path("", include("ledger.urls_api")),
]

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("api/v1/", include(api_v1)),
    re_path(r"^api/(?P<path>.*)$", problems.unknown_address, name="api-unknown"),
    path("", include("runs.urls")),
    path("", include("approvals.urls")),
    path("", include("ledger.urls")),
]

handler400 = "durableagents.problems.handler400"
handler403 = "durableagents.problems.handler403"
handler404 = "durableagents.problems.handler404"
handler500 = "durableagents.problems.handler500"
