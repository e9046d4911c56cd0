"""URLs of this app's pages."""

from django.urls import path

from durableagents.contrib.change_control import services, views

urlpatterns = [
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
    urlpatterns.append(path(f"changes/<uuid:change_id>/{_name}", _view, name=f"rule_change_{_name}"))
