"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.releases import api

urlpatterns = [
    path("agents/<str:name>/versions", api.Versions.as_view(), name="api-versions"),
    *(
        path(
            f"agents/<str:name>/versions/<str:version>/{action}",
            api.SteerVersion.as_view(action=action),
            name=f"api-version-{action}",
        )
        for action in ("close", "open")
    ),
    path("agents/<str:name>/migrations", api.Migrations.as_view(), name="api-migrations"),
    path("agents/<str:name>/migrations/look", api.MigrationPreviews.as_view(), name="api-migrations-look"),
    path("ramps", api.Ramps.as_view(), name="api-ramps"),
    path("ramps/<int:ramp_id>", api.OneRamp.as_view(), name="api-ramp"),
    path("ramps/<int:ramp_id>/raise", api.RaiseRamp.as_view(), name="api-ramp-raise"),
    *(
        path(f"ramps/<int:ramp_id>/{action}", api.SteerRamp.as_view(action=action), name=f"api-ramp-{action}")
        for action in ("resume", "rollback", "finish")
    ),
]
