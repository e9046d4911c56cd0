from django.urls import path

from runs.api.bulk import views

urlpatterns = [
    path("bulk", views.Bulk.as_view(), name="api-bulk"),
    path("bulk/<uuid:batch_id>", views.OneBulk.as_view(), name="api-bulk-one"),
    path("bulk/<uuid:batch_id>/items", views.BulkItems.as_view(), name="api-bulk-items"),
    path("bulk/<uuid:batch_id>/start", views.SteerBulk.as_view(action="start"), name="api-bulk-start"),
    path("bulk/<uuid:batch_id>/stop", views.SteerBulk.as_view(action="stop"), name="api-bulk-stop"),
]
