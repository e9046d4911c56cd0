"""URLs of this app's pages."""

from django.urls import path

from durableagents.contrib.bulk import services, views

_START = views.BatchAct.as_view(service=services.start, act="start", done="Bulk job started.")
_STOP = views.BatchAct.as_view(service=services.stop, act="stop", done="Bulk job stopped.")

urlpatterns = [
    path("bulk", views.BatchesPage.as_view(), name="batches"),
    path("bulk/new", views.NewBatchPage.as_view(), name="new_batch"),
    path("bulk/<uuid:batch_id>", views.BatchPage.as_view(), name="batch"),
    path("bulk/<uuid:batch_id>/starts", _START, name="batch_starts"),
    path("bulk/<uuid:batch_id>/stops", _STOP, name="batch_stops"),
]
