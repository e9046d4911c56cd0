"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.halts import api

urlpatterns = [
    path("halts", api.Halts.as_view(), name="api-halts"),
    path("halts/<uuid:halt>", api.OneHalt.as_view(), name="api-halt"),
    path("halts/<uuid:halt>/stage", api.HaltStage.as_view(), name="api-halt-stage"),
    path("halts/<uuid:halt>/lift", api.HaltLift.as_view(), name="api-halt-lift"),
]
