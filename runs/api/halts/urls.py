"""Addresses of the API's part about halts."""

from django.urls import path

from runs.api.halts import views

urlpatterns = [
    path("halts", views.Halts.as_view(), name="api-halts"),
    path("halts/<uuid:halt>", views.OneHalt.as_view(), name="api-halt"),
    path("halts/<uuid:halt>/stage", views.HaltStage.as_view(), name="api-halt-stage"),
    path("halts/<uuid:halt>/lift", views.HaltLift.as_view(), name="api-halt-lift"),
]
