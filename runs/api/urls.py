from django.urls import path

from ledger.web.api_base import answer_repeats_by
from runs.api import (
    budgets,
    fleet,
    incidents,
    injecting,
    live,
    messages,
    open_effects,
    settling,
    starting,
    undo,
    views,
)
from runs.api.once import answered_once
from runs.api.versions import OneAgent

answer_repeats_by(answered_once)

urlpatterns = [
    path("runs", views.Runs.as_view(), name="api-runs"),
    path("runs/bulk", starting.BulkStart.as_view(), name="api-runs-bulk"),
    path("runs/<uuid:run_id>", views.OneRun.as_view(), name="api-run"),
    path("runs/<uuid:run_id>/why", views.RunWhy.as_view(), name="api-run-why"),
    path("runs/<uuid:run_id>/latest", views.Latest.as_view(), name="api-run-latest"),
    path("runs/<uuid:run_id>/children", views.Children.as_view(), name="api-run-children"),
    path("runs/<uuid:run_id>/log", views.Log.as_view(), name="api-run-log"),
    path("runs/<uuid:run_id>/transcript", views.Transcript.as_view(), name="api-run-transcript"),
    path("runs/<uuid:run_id>/live", live.Live.as_view(), name="api-run-live"),
    path("runs/<uuid:run_id>/pause", views.Steer.as_view(action="pause"), name="api-run-pause"),
    path("runs/<uuid:run_id>/resume", views.GoOn.as_view(action="resume"), name="api-run-resume"),
    path("runs/<uuid:run_id>/context", injecting.RunContext.as_view(), name="api-run-context"),
    path("runs/<uuid:run_id>/cancel", views.Cancel.as_view(action="cancel"), name="api-run-cancel"),
    path("runs/<uuid:run_id>/undo", undo.RunUndo.as_view(), name="api-run-undo"),
    path("runs/<uuid:run_id>/retry", views.Retry.as_view(action="retry"), name="api-run-retry"),
    path("runs/<uuid:run_id>/requeue", views.Requeue.as_view(action="requeue"), name="api-run-requeue"),
    path("runs/<uuid:run_id>/reconcile", settling.Reconcile.as_view(), name="api-run-reconcile"),
    path("runs/<uuid:run_id>/reconcile/withdraw", settling.TakeBack.as_view(), name="api-run-reconcile-withdraw"),
    path("runs/<uuid:run_id>/reconcile/ask", settling.AskUpstream.as_view(), name="api-run-reconcile-ask"),
    path("runs/<uuid:run_id>/budget", budgets.RunBudget.as_view(), name="api-run-budget"),
    path("runs/<uuid:run_id>/models", budgets.RunModels.as_view(), name="api-run-models"),
    path("runs/<uuid:run_id>/priority", views.RunPriority.as_view(), name="api-run-priority"),
    path("effects", open_effects.OpenEffects.as_view(), name="api-effects"),
    path("prices", budgets.Prices.as_view(), name="api-prices"),
    path("runs/<uuid:run_id>/incidents", incidents.RunIncidents.as_view(), name="api-run-incidents"),
    path("incidents", incidents.Incidents.as_view(), name="api-incidents"),
    path("runs/<uuid:run_id>/signals/<str:name>", views.Signals.as_view(), name="api-run-signals"),
    path("runs/<uuid:run_id>/messages", messages.Messages.as_view(), name="api-run-messages"),
    path("runs/<uuid:run_id>/messages/<str:name>", messages.OneMessage.as_view(), name="api-run-message"),
    path("runs/<uuid:run_id>/views/<str:name>", messages.RunView.as_view(), name="api-run-view"),
    path("runs/<uuid:run_id>/answers/<uuid:wait_id>", views.Answers.as_view(), name="api-run-answers"),
    path("callbacks/<str:token>", views.Callback.as_view(), name="api-callback"),
    path("agents", views.Agents.as_view(), name="api-agents"),
    path("agents/<str:reference>", OneAgent.as_view(), name="api-agent"),
    path("fleet/dead", fleet.Dead.as_view(), name="api-fleet-dead"),
    path("fleet/<uuid:process_id>/drain", fleet.Drain.as_view(), name="api-fleet-drain"),
    path("fleet", views.Fleet.as_view(), name="api-fleet"),
]
