"""URLs of this app's pages and forms."""

from django.urls import path

from durableagents.contrib.retention import holds, policies, views
from ledger.web.page_acts import whole

_DAYS = dict.fromkeys(("checkpoint_days", "archive_days", "delete_days"), whole)
_CREATE = views.RetentionAct.as_view(
    service=policies.create, body=policies.RetentionPolicyBody, reads=_DAYS, act="policy", done="Policy in force."
)
_END = views.RetentionAct.as_view(service=policies.end, act="end", done="Policy ended.")
_LIFT = views.RetentionAct.as_view(service=holds.lift, act="lift", done="Legal hold lifted.")

urlpatterns = [
    path("retention", views.RetentionPage.as_view(), name="retention"),
    path("retention/policies", _CREATE, name="new_retention_policy"),
    path("retention/policies/<int:policy_id>/ends", _END, name="retention_policy_ends"),
    path("retention/holds", views.NewHold.as_view(), name="new_legal_hold"),
    path("retention/holds/<int:hold_id>/ends", _LIFT, name="legal_hold_ends"),
    path("archive/<uuid:archived_id>", views.ArchivedRunPage.as_view(), name="archived_run"),
    path("archive/<uuid:archived_id>/restorations", views.Restorations.as_view(), name="restorations"),
]
