"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.encryption import api, views

api_urls = [
    path("runs/<uuid:run_id>/erase", api.RunErase.as_view(), name="api-run-erase"),
    path("erasures", api.Erasures.as_view(), name="api-erasures"),
]

console_urls = [
    path("runs/<uuid:run_id>/erasures", views.Erasures.as_view(), name="erasures"),
    path("runs-and-archives", views.FindingPage.as_view(), name="runs_and_archives"),
    path("runs-and-archives/erasures", views.ErasuresOfMany.as_view(), name="erasures_of_many"),
]
