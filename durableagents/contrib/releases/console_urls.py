"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.releases import views

urlpatterns = [
    path("agents/<str:graph_id>/versions", views.VersionsPage.as_view(), name="versions"),
    path("agents/<str:graph_id>/closings", views.VersionClosings.as_view(), name="version_closings"),
    path("agents/<str:graph_id>/openings", views.VersionOpenings.as_view(), name="version_openings"),
    path("agents/<str:graph_id>/migrations", views.MigrationsPage.as_view(), name="migrations"),
    path("agents/<str:graph_id>/migrations/looks", views.MigrationPreviews.as_view(), name="migration_looks"),
    path("agents/<str:graph_id>/migrations/acts", views.Migrations.as_view(), name="migrating"),
    path("agents/<str:graph_id>/ramps", views.NewRamp.as_view(), name="new_ramp"),
    path("ramps/<int:ramp_id>/shares", views.RampShares.as_view(), name="ramp_shares"),
    path("ramps/<int:ramp_id>/resumptions", views.RampResumptions.as_view(), name="ramp_resumptions"),
    path("ramps/<int:ramp_id>/rollbacks", views.RampRollbacks.as_view(), name="ramp_rollbacks"),
    path("ramps/<int:ramp_id>/completions", views.RampCompletions.as_view(), name="ramp_completions"),
]
