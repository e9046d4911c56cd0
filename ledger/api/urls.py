from django.urls import path

from ledger.api import views

urlpatterns = [
    path("runs/<uuid:run_id>/events", views.Events.as_view(), name="api-run-events"),
    path("runs/<uuid:run_id>/events/<int:seq>/content", views.EventContent.as_view(), name="api-run-event-content"),
    path("runs/<uuid:run_id>/ledger", views.Entries.as_view(), name="api-run-ledger"),
    path("verification", views.Verifications.as_view(), name="api-verification"),
    path("runs/<uuid:run_id>/verification", views.RunVerification.as_view(), name="api-run-verification"),
    path("runs/<uuid:run_id>/overrides", views.Overrides.as_view(), name="api-run-overrides"),
]
