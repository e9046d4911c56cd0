"""URLs of this app's pages."""

from django.urls import path

from durableagents.contrib.forks import views

urlpatterns = [
    path("runs/<uuid:run_id>/fork", views.ForkPage.as_view(), name="fork"),
    path("runs/<uuid:run_id>/forks", views.Forks.as_view(), name="forks"),
    path("runs/<uuid:run_id>/start-again", views.StartAgainPage.as_view(), name="start_again"),
    path("runs/<uuid:run_id>/new-starts", views.NewStarts.as_view(), name="new_starts"),
]
