"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.change_control import api

urlpatterns = [
    path("changes", api.Changes.as_view(), name="api-changes"),
    path("changes/<uuid:change_id>", api.OneChange.as_view(), name="api-change"),
    path("changes/<uuid:change_id>/apply", api.ChangeAct.as_view(action="apply"), name="api-change-apply"),
    path("changes/<uuid:change_id>/refuse", api.ChangeAct.as_view(action="refuse"), name="api-change-refuse"),
    path("changes/<uuid:change_id>/withdraw", api.ChangeAct.as_view(action="withdraw"), name="api-change-withdraw"),
    path("four-eyes", api.FourEyesRules.as_view(), name="api-four-eyes"),
]
