"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.change_control import api, services, views

api_urls = [
    path("changes", api.Changes.as_view(), name="api-changes"),
    path("changes/<uuid:change_id>", api.OneChange.as_view(), name="api-change"),
    path("changes/<uuid:change_id>/apply", api.ChangeAct.as_view(action="apply"), name="api-change-apply"),
    path("changes/<uuid:change_id>/refuse", api.ChangeAct.as_view(action="refuse"), name="api-change-refuse"),
    path("changes/<uuid:change_id>/withdraw", api.ChangeAct.as_view(action="withdraw"), name="api-change-withdraw"),
    path("four-eyes", api.FourEyesRules.as_view(), name="api-four-eyes"),
]

console_urls = [
    path("changes", views.ChangesPage.as_view(), name="rule_changes"),
    path("changes/guards", views.Guards.as_view(), name="four_eyes"),
    path("changes/<uuid:change_id>", views.ChangePage.as_view(), name="rule_change"),
]
for _name, _act, _service, _done in (
    ("agreements", "Agreements", services.apply, "applied"),
    ("refusals", "Refusals", services.refuse, "rejected"),
    ("withdrawals", "Withdrawals", services.withdraw, "withdrawn"),
):
    _view = views.ChangeAct.as_view(service=_service, act=_act, done=f"Change {_done}.")
    console_urls.append(path(f"changes/<uuid:change_id>/{_name}", _view, name=f"rule_change_{_name}"))
