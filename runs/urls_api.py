from django.urls import path

from runs import api, api_incidents

urlpatterns = [
    path("runs", api.Runs.as_view(), name="api-runs"),
    path("runs/<uuid:run_id>", api.OneRun.as_view(), name="api-run"),
    path("runs/<uuid:run_id>/transcript", api.Transcript.as_view(), name="api-run-transcript"),
    path("runs/<uuid:run_id>/pause", api.Steer.as_view(action="pause"), name="api-run-pause"),
    path("runs/<uuid:run_id>/resume", api.Steer.as_view(action="resume"), name="api-run-resume"),
    path("runs/<uuid:run_id>/cancel", api.Steer.as_view(action="cancel"), name="api-run-cancel"),
    path("runs/<uuid:run_id>/retry", api.Retry.as_view(action="retry"), name="api-run-retry"),
    path("runs/<uuid:run_id>/reconcile", api.Reconcile.as_view(), name="api-run-reconcile"),
    path("runs/<uuid:run_id>/incidents", api_incidents.RunIncidents.as_view(), name="api-run-incidents"),
    path("incidents", api_incidents.Incidents.as_view(), name="api-incidents"),
    path("runs/<uuid:run_id>/signals/<str:name>", api.Signals.as_view(), name="api-run-signals"),
    path("runs/<uuid:run_id>/answers/<uuid:wait_id>", api.Answers.as_view(), name="api-run-answers"),
    path("callbacks/<str:token>", api.Callback.as_view(), name="api-callback"),
    path("agents", api.Agents.as_view(), name="api-agents"),
    path("fleet", api.Fleet.as_view(), name="api-fleet"),
]
