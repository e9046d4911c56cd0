"""URLs of this app's pages and of their forms."""

from django.urls import path

from durableagents.contrib.releases import services, views
from durableagents.contrib.releases.services import RaiseBody, RampActBody
from ledger.web.page_acts import decimal, whole

_CLOSE = views.VersionAct.as_view(service=services.close_version, act="closing", done="Version closed to new runs.")
_OPEN = views.VersionAct.as_view(service=services.open_version, act="opening", done="Version open to new runs.")
_RAISE = {"service": services.raise_ramp, "body": RaiseBody, "reads": {"share": decimal, "revision": whole}}
_STEER = {"body": RampActBody, "reads": {"revision": whole}}
_REVERTED = "Ramp reverted. The newer version is closed to new runs."

urlpatterns = [
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
    urlpatterns.append(path(f"ramps/<int:ramp_id>/{_name}", _view, name=f"ramp_{_name}"))
