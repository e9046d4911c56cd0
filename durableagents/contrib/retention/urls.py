"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.retention import api, holds, policies, views
from ledger.web.page_acts import whole

api_urls = [
    path("retention", api.Rules.as_view(), name="api-retention"),
    path("retention/policies", api.Policies.as_view(), name="api-retention-policies"),
    path("retention/policies/<int:policy_id>/end", api.PolicyEnds.as_view(), name="api-retention-policy-end"),
    path("retention/holds", api.Holds.as_view(), name="api-legal-holds"),
    path("retention/holds/<int:hold_id>/lift", api.HoldEnds.as_view(), name="api-legal-hold-lift"),
    path("retention/archives", api.ArchivedRuns.as_view(), name="api-archived-runs"),
    path("retention/archives/<uuid:archived_id>", api.ArchivedRun.as_view(), name="api-archived-run"),
    path("retention/archives/<uuid:archived_id>/events", api.ArchivedEvents.as_view(), name="api-archived-run-events"),
    path("retention/archives/<uuid:archived_id>/restore", api.Restorations.as_view(), name="api-archived-run-restore"),
]

_DAYS = dict.fromkeys(("checkpoint_days", "archive_days", "delete_days"), whole)
_CREATE = views.RetentionAct.as_view(
    service=policies.create, body=policies.RetentionPolicyBody, reads=_DAYS, act="policy", done="Policy in force."
)
_END = views.RetentionAct.as_view(service=policies.end, act="end", done="Policy ended.")
_LIFT = views.RetentionAct.as_view(service=holds.lift, act="lift", done="Legal hold lifted.")

console_urls = [
    path("retention", views.RetentionPage.as_view(), name="retention"),
    path("retention/policies", _CREATE, name="new_retention_policy"),
    path("retention/policies/<int:policy_id>/ends", _END, name="retention_policy_ends"),
    path("retention/holds", views.NewHold.as_view(), name="new_legal_hold"),
    path("retention/holds/<int:hold_id>/ends", _LIFT, name="legal_hold_ends"),
    path("archive/<uuid:archived_id>", views.ArchivedRunPage.as_view(), name="archived_run"),
    path("archive/<uuid:archived_id>/restorations", views.Restorations.as_view(), name="restorations"),
]
