from django.urls import path

from ledger import api

urlpatterns = [
    path("runs/<uuid:run_id>/events", api.Events.as_view(), name="api-run-events"),
    path("runs/<uuid:run_id>/ledger", api.Entries.as_view(), name="api-run-ledger"),
    path("verification", api.Verifications.as_view(), name="api-verification"),
    path("runs/<uuid:run_id>/verification", api.RunVerification.as_view(), name="api-run-verification"),
    path("runs/<uuid:run_id>/overrides", api.Overrides.as_view(), name="api-run-overrides"),
]
