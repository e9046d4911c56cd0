"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.bulk import api, services, views

api_urls = [
    path("bulk", api.Bulk.as_view(), name="api-bulk"),
    path("bulk/<uuid:batch_id>", api.OneBulk.as_view(), name="api-bulk-one"),
    path("bulk/<uuid:batch_id>/items", api.BulkItems.as_view(), name="api-bulk-items"),
    path("bulk/<uuid:batch_id>/start", api.SteerBulk.as_view(action="start"), name="api-bulk-start"),
    path("bulk/<uuid:batch_id>/stop", api.SteerBulk.as_view(action="stop"), name="api-bulk-stop"),
]

_START = views.BatchAct.as_view(service=services.start, act="start", done="Bulk job started.")
_STOP = views.BatchAct.as_view(service=services.stop, act="stop", done="Bulk job stopped.")

console_urls = [
    path("bulk", views.BatchesPage.as_view(), name="batches"),
    path("bulk/new", views.NewBatchPage.as_view(), name="new_batch"),
    path("bulk/<uuid:batch_id>", views.BatchPage.as_view(), name="batch"),
    path("bulk/<uuid:batch_id>/starts", _START, name="batch_starts"),
    path("bulk/<uuid:batch_id>/stops", _STOP, name="batch_stops"),
]
