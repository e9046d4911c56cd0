"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.bulk import views

urlpatterns = [
    path("bulk", views.BatchesPage.as_view(), name="batches"),
    path("bulk/new", views.NewBatchPage.as_view(), name="new_batch"),
    path("bulk/<uuid:batch_id>", views.BatchPage.as_view(), name="batch"),
    path("bulk/<uuid:batch_id>/starts", views.BatchStarts.as_view(), name="batch_starts"),
    path("bulk/<uuid:batch_id>/stops", views.BatchStops.as_view(), name="batch_stops"),
]
