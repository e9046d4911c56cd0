from django.urls import path

from approvals.api import cases, queues, views

urlpatterns = [
    path("audit", cases.Audit.as_view(), name="api-audit"),
    path("queues", queues.Queues.as_view(), name="api-queues"),
    path("queues/<str:queue>", queues.OneQueue.as_view(), name="api-queue"),
    *(path(f"queues/<str:queue>/{word}", view, name=f"api-queue-{word}") for word, view in queues.ACTS.items()),
    path("approvals", views.Approvals.as_view(), name="api-approvals"),
    path("approvals/<uuid:approval_id>", views.OneApproval.as_view(), name="api-approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decide.as_view(), name="api-approval-decision"),
]
