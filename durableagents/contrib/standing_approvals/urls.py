"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from approvals.queues.views import QueueAct, parse_sum
from durableagents.contrib.standing_approvals import api, services, views
from durableagents.contrib.standing_approvals.services import BoundsBody

_LIMITS = {"body": BoundsBody, "reads": {"sum": parse_sum}, "defaults": {"sum": "none"}, "aside": ("seen",)}
_SET = QueueAct.as_view(
    act="QueueGrants", service=services.set_limits, done="Standing approval limits saved.", **_LIMITS
)

console_urls = [
    path("queues/of/<str:queue>/grants", _SET, name="queue_grants"),
    path("queues/grants", views.GrantsPage.as_view(), name="standing_grants"),
    path("queues/grants/<int:grant_id>", views.OneGrantPage.as_view(), name="standing_grant"),
    path("queues/grants/<int:grant_id>/ends", views.GrantEnds.as_view(), name="standing_grant_ends"),
]

api_urls = [
    path("queues/<str:queue>/grants", api.QueueGrants.as_view(), name="api-queue-grants"),
    path("grants", api.Grants.as_view(), name="api-grants"),
    path("grants/<int:grant_id>", api.OneGrant.as_view(), name="api-grant"),
    path("grants/<int:grant_id>/end", api.GrantEnd.as_view(), name="api-grant-end"),
]
