"""URLs of the API that this app adds."""

from django.urls import path

from durableagents.contrib.encryption import api

urlpatterns = [
    path("runs/<uuid:run_id>/erase", api.RunErase.as_view(), name="api-run-erase"),
    path("erasures", api.Erasures.as_view(), name="api-erasures"),
]
