"""URLs of the console that this app adds."""

from django.urls import path

from durableagents.contrib.encryption import views

urlpatterns = [path("runs/<uuid:run_id>/erasures", views.Erasures.as_view(), name="erasures")]
