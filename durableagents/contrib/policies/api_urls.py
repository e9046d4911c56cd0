"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.policies import api

urlpatterns = [
    path("policies", api.Policies.as_view(), name="api-policies"),
    path("policies/restore", api.PoliciesRestore.as_view(), name="api-policies-restore"),
    path("policies/try", api.PoliciesTry.as_view(), name="api-policies-try"),
    path("policies/<str:policy>", api.OnePolicy.as_view(), name="api-policy"),
    path("policies/<str:policy>/retire", api.PolicyRetire.as_view(), name="api-policy-retire"),
]
