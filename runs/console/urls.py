"""URLs of the runs' pages.

Forms are POSTed to URLs that end in a noun for the action. Each action leaves a record with that name.
"""

from django.urls import path

from runs.console import (
    agent_views,
    download_views,
    fleet,
    injecting,
    run_views,
    settling,
    start_views,
)
from runs.services import lifecycle
from runs.services.bodies import CancelForm, DoubtBody
from runs.services.fleet import requeue
from runs.services.settling import agreeing, senders

_STOP, _ACT, _UNKNOWN = (
    run_views.Stopping.as_view,
    run_views.Steering.as_view,
    {"body": DoubtBody, "takes_fields": True},
)
_CANCEL = {"body": CancelForm, "takes_fields": True}
_STEERING = {
    "pauses": _STOP(act="pause", service=lifecycle.pause, done="Pause requested."),
    "resumptions": _STOP(act="resume", service=lifecycle.resume, done="Resumed."),
    "cancellations": _STOP(act="cancel", service=lifecycle.cancel, done="Cancellation requested.", **_CANCEL),
    "retries": _ACT(act="retry", service=lifecycle.retry, done="Retrying from the failed step."),
    "requeues": _ACT(act="requeue", service=requeue, done="Requeued for another worker."),
}
_WITHDRAW = run_views.RunAct.as_view(
    act=settling.TAKE_BACK, service=agreeing.take_back, done="Proposal withdrawn.", **_UNKNOWN
)
_ASK = run_views.RunAct.as_view(
    act=settling.ASK, service=senders.ask, done="Check requested. The answer will appear here.", **_UNKNOWN
)

urlpatterns = [
    path("runs", run_views.RunsPage.as_view(), name="runs"),
    path("runs/new", start_views.StartPage.as_view(), name="start"),
    path("runs/<uuid:run_id>", run_views.RunPage.as_view(), name="run"),
    *(path(f"runs/<uuid:run_id>/{noun}", act, name=noun) for noun, act in _STEERING.items()),
    path("runs/<uuid:run_id>/context", injecting.ContextPage.as_view(), name="context"),
    path("runs/<uuid:run_id>/context/looks", injecting.ContextLooks.as_view(), name="context_looks"),
    path(
        "runs/<uuid:run_id>/context/resumptions",
        injecting.ContextActs.as_view(action="resume"),
        name="context_resumptions",
    ),
    path("runs/<uuid:run_id>/context/retries", injecting.ContextActs.as_view(action="retry"), name="context_retries"),
    path("runs/<uuid:run_id>/reconciliations", settling.Reconciliations.as_view(), name="reconciliations"),
    path("runs/<uuid:run_id>/reconciliations/withdrawals", _WITHDRAW, name="reconciliation_withdrawals"),
    path("runs/<uuid:run_id>/reconciliations/similar", settling.SimilarPage.as_view(), name="similar_outcomes"),
    path("runs/<uuid:run_id>/reconciliations/askings", _ASK, name="reconciliation_askings"),
    path("runs/<uuid:run_id>/budgets", run_views.Budgets.as_view(), name="budgets"),
    path("runs/<uuid:run_id>/models", run_views.Models.as_view(), name="models"),
    path("runs/<uuid:run_id>/answers/<uuid:wait_id>", run_views.Answers.as_view(), name="answers"),
    path("runs/<uuid:run_id>/messages/<str:name>", run_views.Messages.as_view(), name="messages"),
    path("runs/<uuid:run_id>/views/<str:name>", run_views.ViewPage.as_view(), name="run-view"),
    path(
        "runs/<uuid:run_id>/views/<str:name>/value",
        download_views.ViewValue.as_view(),
        name="view_value",
    ),
    path(
        "runs/<uuid:run_id>/events/<int:seq>/payload",
        download_views.EventPayload.as_view(),
        name="event_payload",
    ),
    path(
        "runs/<uuid:run_id>/checkpoints/<int:seq>/state",
        download_views.CheckpointState.as_view(),
        name="checkpoint_state",
    ),
    path("reconcile", run_views.ReconcilePage.as_view(), name="reconcile"),
    path("agents", agent_views.AgentsPage.as_view(), name="agents"),
    path("agents/<str:graph_id>", agent_views.AgentPage.as_view(), name="agent"),
    path("fleet/recoveries", agent_views.RecoveriesPage.as_view(), name="recoveries"),
    path("fleet/deaths", fleet.Deaths.as_view(), name="host_deaths"),
    path("fleet/drains", fleet.Drains.as_view(), name="worker_drains"),
    path("fleet/acts", fleet.FleetActsPage.as_view(), name="fleet_acts"),
    path("fleet", agent_views.FleetPage.as_view(), name="fleet"),
]
