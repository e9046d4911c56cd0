"""URLs of the inbox and the audit."""

from django.urls import path

from approvals import views
from approvals.cases import views as cases
from approvals.granting import views as granting
from approvals.notices import views as notices
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
    path("notifications", notices.Mine.as_view(), name="notifications"),
    path("notifications/settings", notices.Settings.as_view(), name="notice_settings"),
    path("notifications/tests", notices.Tests.as_view(), name="notice_tests"),
    path("notifications/browser", notices.Browser.as_view(), name="notice_browser"),
    path("notifications/log", notices.LogPage.as_view(), name="notice_log"),
    path("notifications/log/<int:delivery_id>/replays", notices.Replays.as_view(), name="notice_replays"),
    path("notifications/channels", notices.ChannelsPage.as_view(), name="channels"),
    path("notifications/channels/new", notices.NewChannel.as_view(), name="new_channel"),
    path("notifications/channels/<int:channel_id>/changes", notices.ChannelChanges.as_view(), name="channel_changes"),
    path("notifications/channels/<int:channel_id>/ends", notices.ChannelEnds.as_view(), name="channel_ends"),
    path("notifications/channels/<int:channel_id>/tests", notices.ChannelTests.as_view(), name="channel_tests"),
    path("audit", views.AuditPage.as_view(), name="audit"),
]
