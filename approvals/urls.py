"""URLs of the inbox and the audit."""

from django.urls import path

from approvals import views
from approvals.cases import views as cases
from approvals.changes import views as changes
from approvals.deadlines import views as timing
from approvals.granting import views as granting
from approvals.policies import views as policies
from approvals.queues import views as queues

urlpatterns = [
    path("inbox", views.InboxPage.as_view(), name="inbox"),
    path("inbox/<uuid:approval_id>", views.InboxPage.as_view(), name="approval"),
    path("approvals/<uuid:approval_id>/decision", views.Decisions.as_view(), name="decision"),
    path("approvals/<uuid:approval_id>/changes", cases.Changes.as_view(), name="changes"),
    path("approvals/<uuid:approval_id>/plan", cases.Plan.as_view(), name="plan"),
    path("queues", queues.QueuesPage.as_view(), name="queues"),
    path("queues/new", queues.Adding.as_view(), name="new_queue"),
    path("queues/deputies", queues.Appointing.as_view(), name="deputies"),
    path("queues/deputies/<int:deputy_id>/revocations", queues.Revoking.as_view(), name="deputy_revocations"),
    path("queues/of/<str:queue>", queues.OneQueuePage.as_view(), name="queue"),
    path("queues/of/<str:queue>/changes", queues.QueueChanges.as_view(), name="queue_changes"),
    path("queues/of/<str:queue>/closings", queues.QueueClosings.as_view(), name="queue_closings"),
    path("queues/of/<str:queue>/openings", queues.QueueOpenings.as_view(), name="queue_openings"),
    path("queues/of/<str:queue>/removals", queues.QueueRemovals.as_view(), name="queue_removals"),
    path("queues/of/<str:queue>/limits", queues.QueueLimits.as_view(), name="queue_limits"),
    path("queues/of/<str:queue>/lifts", queues.QueueLifts.as_view(), name="queue_lifts"),
    path("queues/of/<str:queue>/proofs", queues.QueueProofs.as_view(), name="queue_proofs"),
    path("queues/of/<str:queue>/grants", granting.QueueGrants.as_view(), name="queue_grants"),
    path("queues/grants", granting.GrantsPage.as_view(), name="standing_grants"),
    path("queues/grants/<int:grant_id>", granting.OneGrantPage.as_view(), name="standing_grant"),
    path("queues/grants/<int:grant_id>/ends", granting.GrantEnds.as_view(), name="standing_grant_ends"),
    path("queues/of/<str:queue>/reasons", queues.QueueReasons.as_view(), name="queue_reasons"),
    path("policies", policies.PoliciesPage.as_view(), name="policies"),
    path("policies/new", policies.PolicyAdding.as_view(), name="new_policy"),
    path("policies/tries", policies.PolicyTrying.as_view(), name="policy_tries"),
    path("policies/restorations", policies.PolicyRestoring.as_view(), name="policy_restorations"),
    path("policies/of/<str:policy>", policies.OnePolicyPage.as_view(), name="policy"),
    path("policies/of/<str:policy>/versions", policies.PolicyChanging.as_view(), name="policy_versions"),
    path("policies/of/<str:policy>/retirements", policies.PolicyRetiring.as_view(), name="policy_retirements"),
    path("changes", changes.ChangesPage.as_view(), name="rule_changes"),
    path("changes/guards", changes.Guards.as_view(), name="four_eyes"),
    path("changes/<uuid:change_id>", changes.ChangePage.as_view(), name="rule_change"),
    path("changes/<uuid:change_id>/agreements", changes.Agreements.as_view(), name="rule_change_agreements"),
    path("changes/<uuid:change_id>/refusals", changes.Refusals.as_view(), name="rule_change_refusals"),
    path("changes/<uuid:change_id>/withdrawals", changes.Withdrawals.as_view(), name="rule_change_withdrawals"),
    path("queues/of/<str:queue>/timings", timing.QueueTimings.as_view(), name="queue_timings"),
    path("queues/calendars", timing.CalendarsPage.as_view(), name="calendars"),
    path("queues/calendars/new", timing.AddingCalendar.as_view(), name="new_calendar"),
    path("queues/calendars/of/<str:calendar>", timing.OneCalendarPage.as_view(), name="calendar"),
    path("queues/calendars/of/<str:calendar>/changes", timing.CalendarChanges.as_view(), name="calendar_changes"),
    path("queues/calendars/of/<str:calendar>/removals", timing.CalendarRemovals.as_view(), name="calendar_removals"),
    path("queues/absences", timing.Leaving.as_view(), name="absences"),
    path("queues/absences/<int:absence_id>/endings", timing.ComingBack.as_view(), name="absence_endings"),
    path("audit", views.AuditPage.as_view(), name="audit"),
]
