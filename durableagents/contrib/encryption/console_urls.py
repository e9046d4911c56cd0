"""URLs of the console that this app adds."""

from django.urls import path

from durableagents.contrib.encryption import views

urlpatterns = [
    path("runs/<uuid:run_id>/erasures", views.Erasures.as_view(), name="erasures"),
    path("runs-and-archives", views.FindingPage.as_view(), name="runs_and_archives"),
    path("runs-and-archives/erasures", views.ErasuresOfMany.as_view(), name="erasures_of_many"),
]
