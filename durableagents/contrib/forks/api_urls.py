"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.forks import api

urlpatterns = [
    path("runs/<uuid:run_id>/fork", api.RunFork.as_view(), name="api-run-fork"),
    path("runs/<uuid:run_id>/start-again", api.StartAgain.as_view(), name="api-run-start-again"),
]
