"""URLs of the inbox and the audit."""

from django.urls import path

from approvals import views
from approvals.cases import views as cases
from approvals.queues import acts
from approvals.queues import views as queues
from ledger.web.page_acts import is_on

_ACT, _SEEN = queues.QueueAct.as_view, ("seen",)
_CHANGE = {"body": acts.QueueChangeBody, "reads": {"needs_amount": is_on}, "defaults": {"needs_amount": "off"}}
_LIMIT = {"body": acts.LimitBody, "reads": {"most": queues.parse_sum}, "defaults": {"most": "none"}}
_PROOF = {
    "body": acts.ProofBody,
    "reads": {"above": queues.parse_sum, "second_factor": is_on, "type_amount": is_on, "type_target": is_on},
    "defaults": {"above": "none"},
}
_QUEUE_ACTS = {
    "changes": _ACT(act="QueueChanges", service=acts.change, done="Queue saved.", aside=_SEEN, **_CHANGE),
    "closings": _ACT(act="QueueClosings", service=acts.close, done="Queue closed."),
    "openings": _ACT(act="QueueOpenings", service=acts.open_again, done="Queue opened."),
    "removals": queues.QueueRemovals.as_view(),
    "limits": _ACT(act="QueueLimits", service=acts.limit, done="Limit saved.", aside=_SEEN, **_LIMIT),
    "lifts": _ACT(act="QueueLifts", service=acts.lift, done="Limit removed.", aside=_SEEN, body=acts.LiftBody),
    "proofs": _ACT(act="QueueProofs", service=acts.prove, done="Extra verification saved.", aside=_SEEN, **_PROOF),
    "reasons": queues.QueueReasons.as_view(),
}

urlpatterns = [
    path("inbox", views.InboxPage.as_view(), name="inbox"),
    path("inbox/<uuid:approval_id>", views.InboxPage.as_view(), name="approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decisions.as_view(), name="decision"),
    path("approvals/<uuid:approval_id>/changes", cases.Changes.as_view(), name="changes"),
    path("approvals/<uuid:approval_id>/plan", cases.Plan.as_view(), name="plan"),
    path("queues", queues.QueuesPage.as_view(), name="queues"),
    path("queues/new", queues.NewQueue.as_view(), name="new_queue"),
    path("queues/of/<str:queue>", queues.OneQueuePage.as_view(), name="queue"),
    *(path(f"queues/of/<str:queue>/{act}", view, name=f"queue_{act}") for act, view in _QUEUE_ACTS.items()),
    path("audit", views.AuditPage.as_view(), name="audit"),
]
