"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.forks import api, views

api_urls = [
    path("runs/<uuid:run_id>/fork", api.RunFork.as_view(), name="api-run-fork"),
    path("runs/<uuid:run_id>/start-again", api.StartAgain.as_view(), name="api-run-start-again"),
]

console_urls = [
    path("runs/<uuid:run_id>/fork", views.ForkPage.as_view(), name="fork"),
    path("runs/<uuid:run_id>/forks", views.Forks.as_view(), name="forks"),
    path("runs/<uuid:run_id>/start-again", views.StartAgainPage.as_view(), name="start_again"),
    path("runs/<uuid:run_id>/new-starts", views.NewStarts.as_view(), name="new_starts"),
]
