from django.urls import path

from approvals.api import cases, queues, views

urlpatterns = [
    path("audit", cases.Audit.as_view(), name="api-audit"),
    path("queues", queues.Queues.as_view(), name="api-queues"),
    path("queues/<str:queue>", queues.OneQueue.as_view(), name="api-queue"),
    path("queues/<str:queue>/close", queues.QueueClose.as_view(), name="api-queue-close"),
    path("queues/<str:queue>/open", queues.QueueOpen.as_view(), name="api-queue-open"),
    path("queues/<str:queue>/remove", queues.QueueRemove.as_view(), name="api-queue-remove"),
    path("queues/<str:queue>/limit", queues.QueueLimit.as_view(), name="api-queue-limit"),
    path("queues/<str:queue>/lift", queues.QueueLift.as_view(), name="api-queue-lift"),
    path("queues/<str:queue>/proof", queues.QueueProof.as_view(), name="api-queue-proof"),
    path("queues/<str:queue>/reasons", queues.QueueReasons.as_view(), name="api-queue-reasons"),
    path("approvals", views.Approvals.as_view(), name="api-approvals"),
    path("approvals/<uuid:approval_id>", views.OneApproval.as_view(), name="api-approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decide.as_view(), name="api-approval-decision"),
]
