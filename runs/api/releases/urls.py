"""Addresses of the API's part about releases."""

from django.urls import path

from runs.api.migrating import views as migrating
from runs.api.releases import views

urlpatterns = [
    path("agents/<str:name>/versions", views.Versions.as_view(), name="api-versions"),
    path(
        "agents/<str:name>/versions/<str:version>/close",
        views.SteerVersion.as_view(action="close"),
        name="api-version-close",
    ),
    path(
        "agents/<str:name>/versions/<str:version>/open",
        views.SteerVersion.as_view(action="open"),
        name="api-version-open",
    ),
    path("agents/<str:name>/migrations", migrating.Migrations.as_view(), name="api-migrations"),
    path("agents/<str:name>/migrations/look", migrating.Look.as_view(), name="api-migrations-look"),
    path("ramps", views.Ramps.as_view(), name="api-ramps"),
    path("ramps/<int:ramp_id>", views.OneRamp.as_view(), name="api-ramp"),
    path("ramps/<int:ramp_id>/raise", views.RaiseRamp.as_view(), name="api-ramp-raise"),
    path("ramps/<int:ramp_id>/resume", views.SteerRamp.as_view(action="resume"), name="api-ramp-resume"),
    path("ramps/<int:ramp_id>/rollback", views.SteerRamp.as_view(action="rollback"), name="api-ramp-rollback"),
    path("ramps/<int:ramp_id>/finish", views.SteerRamp.as_view(action="finish"), name="api-ramp-finish"),
]
