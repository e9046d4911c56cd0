"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.releases import api, services, views
from durableagents.contrib.releases.services import RaiseBody, RampActBody
from ledger.web.page_acts import decimal, whole

api_urls = [
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

_CLOSE = views.VersionAct.as_view(service=services.close_version, act="closing", done="Version closed to new runs.")
_OPEN = views.VersionAct.as_view(service=services.open_version, act="opening", done="Version open to new runs.")
_RAISE = {"service": services.raise_ramp, "body": RaiseBody, "reads": {"share": decimal, "revision": whole}}
_STEER = {"body": RampActBody, "reads": {"revision": whole}}
_REVERTED = "Ramp reverted. The newer version is closed to new runs."

console_urls = [
    path("agents/<str:graph_id>/versions", views.VersionsPage.as_view(), name="versions"),
    path("agents/<str:graph_id>/closings", _CLOSE, name="version_closings"),
    path("agents/<str:graph_id>/openings", _OPEN, name="version_openings"),
    path("agents/<str:graph_id>/migrations", views.MigrationsPage.as_view(), name="migrations"),
    path("agents/<str:graph_id>/migrations/looks", views.MigrationPreviews.as_view(), name="migration_looks"),
    path("agents/<str:graph_id>/migrations/acts", views.Migrations.as_view(), name="migrating"),
    path("agents/<str:graph_id>/ramps", views.NewRamp.as_view(), name="new_ramp"),
]
for _name, _act, _done, _read in (
    ("shares", "share", "Share raised.", _RAISE),
    ("resumptions", "resume", "Ramp resumed.", {"service": services.resume_ramp, **_STEER}),
    ("rollbacks", "rollback", _REVERTED, {"service": services.roll_back_ramp, **_STEER}),
    ("completions", "finish", "Ramp finished.", {"service": services.finish_ramp, **_STEER}),
):
    _view = views.ReleaseAct.as_view(act=_act, done=_done, **_read)
    console_urls.append(path(f"ramps/<int:ramp_id>/{_name}", _view, name=f"ramp_{_name}"))
