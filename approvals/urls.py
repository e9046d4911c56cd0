"""URLs of the inbox and the audit."""

from django.urls import path

from approvals import views
from approvals.cases import views as cases
from approvals.queues import views as queues

urlpatterns = [
    path("inbox", views.InboxPage.as_view(), name="inbox"),
    path("inbox/<uuid:approval_id>", views.InboxPage.as_view(), name="approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decisions.as_view(), name="decision"),
    path("approvals/<uuid:approval_id>/changes", cases.Changes.as_view(), name="changes"),
    path("approvals/<uuid:approval_id>/plan", cases.Plan.as_view(), name="plan"),
    path("queues", queues.QueuesPage.as_view(), name="queues"),
    path("queues/new", queues.Adding.as_view(), name="new_queue"),
    path("queues/of/<str:queue>", queues.OneQueuePage.as_view(), name="queue"),
    path("queues/of/<str:queue>/changes", queues.QueueChanges.as_view(), name="queue_changes"),
    path("queues/of/<str:queue>/closings", queues.QueueClosings.as_view(), name="queue_closings"),
    path("queues/of/<str:queue>/openings", queues.QueueOpenings.as_view(), name="queue_openings"),
    path("queues/of/<str:queue>/removals", queues.QueueRemovals.as_view(), name="queue_removals"),
    path("queues/of/<str:queue>/limits", queues.QueueLimits.as_view(), name="queue_limits"),
    path("queues/of/<str:queue>/lifts", queues.QueueLifts.as_view(), name="queue_lifts"),
    path("queues/of/<str:queue>/proofs", queues.QueueProofs.as_view(), name="queue_proofs"),
    path("queues/of/<str:queue>/reasons", queues.QueueReasons.as_view(), name="queue_reasons"),
    path("audit", views.AuditPage.as_view(), name="audit"),
]
