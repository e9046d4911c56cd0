"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.limits import api, budget_api

urlpatterns = [
    path("limits", api.Limits.as_view(), name="api-limits"),
    path("limits/reset", api.SteerLimit.as_view(action="reset"), name="api-limit-reset"),
    path("limits/open", api.SteerLimit.as_view(action="open"), name="api-limit-open"),
    path("limits/close", api.SteerLimit.as_view(action="close"), name="api-limit-close"),
    path("shared-budgets", budget_api.SharedBudgets.as_view(), name="api-shared-budgets"),
    path("shared-budgets/<int:budget_id>", budget_api.OneSharedBudget.as_view(), name="api-shared-budget"),
    path("shared-budgets/<int:budget_id>/off", budget_api.SharedBudgetOff.as_view(), name="api-shared-budget-off"),
    path(
        "runs/<uuid:run_id>/shared-budgets",
        budget_api.SharedBudgetsOfRun.as_view(),
        name="api-run-shared-budgets",
    ),
]
