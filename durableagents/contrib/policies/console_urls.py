"""Addresses of this app's pages."""

from django.urls import path

from durableagents.contrib.policies import views

urlpatterns = [
    path("policies", views.PoliciesPage.as_view(), name="policies"),
    path("policies/new", views.PolicyAdding.as_view(), name="new_policy"),
    path("policies/tries", views.PolicyTrying.as_view(), name="policy_tries"),
    path("policies/restorations", views.PolicyRestoring.as_view(), name="policy_restorations"),
    path("policies/of/<str:policy>", views.OnePolicyPage.as_view(), name="policy"),
    path("policies/of/<str:policy>/versions", views.PolicyChanging.as_view(), name="policy_versions"),
    path("policies/of/<str:policy>/retirements", views.PolicyRetiring.as_view(), name="policy_retirements"),
]
