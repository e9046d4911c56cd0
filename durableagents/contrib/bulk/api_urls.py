"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.bulk import api

urlpatterns = [
    path("bulk", api.Bulk.as_view(), name="api-bulk"),
    path("bulk/<uuid:batch_id>", api.OneBulk.as_view(), name="api-bulk-one"),
    path("bulk/<uuid:batch_id>/items", api.BulkItems.as_view(), name="api-bulk-items"),
    path("bulk/<uuid:batch_id>/start", api.SteerBulk.as_view(action="start"), name="api-bulk-start"),
    path("bulk/<uuid:batch_id>/stop", api.SteerBulk.as_view(action="stop"), name="api-bulk-stop"),
]
