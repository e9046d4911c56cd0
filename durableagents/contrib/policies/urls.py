"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.policies import api, services, views
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody
from ledger.web.page_acts import whole

_RULES, _POLICY = views.RulesAct.as_view, views.PolicyAct.as_view
_NEW = _RULES(act="add", service=services.create, done="Policy published.", body=NewPolicyBody, reads=views.READ)
_CHANGE = {"body": PolicyBody, "reads": views.READ | {"seen": whole}, "page": "policy", "has_own_page": True}
_VERSION = _POLICY(act="change", service=services.change, done="New version published.", **_CHANGE)
_RETIRE = _POLICY(act="retire", service=services.retire, done="Policy retired.", page="policies")

console_urls = [
    path("policies", views.PoliciesPage.as_view(), name="policies"),
    path("policies/new", _NEW, name="new_policy"),
    path("policies/tries", views.PolicyTrying.as_view(), name="policy_tries"),
    path(
        "policies/restorations",
        _RULES(act="restore", service=services.restore, done="Policies restored."),
        name="policy_restorations",
    ),
    path("policies/of/<str:policy>", views.OnePolicyPage.as_view(), name="policy"),
    path("policies/of/<str:policy>/versions", _VERSION, name="policy_versions"),
    path("policies/of/<str:policy>/retirements", _RETIRE, name="policy_retirements"),
]

api_urls = [
    path("policies", api.Policies.as_view(), name="api-policies"),
    path("policies/restore", api.PoliciesRestore.as_view(), name="api-policies-restore"),
    path("policies/try", api.PoliciesTry.as_view(), name="api-policies-try"),
    path("policies/<str:policy>", api.OnePolicy.as_view(), name="api-policy"),
    path("policies/<str:policy>/retire", api.PolicyRetire.as_view(), name="api-policy-retire"),
]
