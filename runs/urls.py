"""The runs' pages. Acts are nouns that are POSTed to: each leaves a record of that name."""

from django.urls import path

from runs import views, views_agents, views_start

urlpatterns = [
    path("runs", views.RunsPage.as_view(), name="runs"),
    path("runs/new", views_start.StartPage.as_view(), name="start"),
    path("runs/<uuid:run_id>", views.RunPage.as_view(), name="run"),
    path("runs/<uuid:run_id>/pauses", views.Pauses.as_view(), name="pauses"),
    path("runs/<uuid:run_id>/resumptions", views.Resumptions.as_view(), name="resumptions"),
    path("runs/<uuid:run_id>/cancellations", views.Cancellations.as_view(), name="cancellations"),
    path("runs/<uuid:run_id>/retries", views.Retries.as_view(), name="retries"),
    path("runs/<uuid:run_id>/reconciliations", views.Reconciliations.as_view(), name="reconciliations"),
    path("runs/<uuid:run_id>/answers/<uuid:wait_id>", views.Answers.as_view(), name="answers"),
    path("reconcile", views.ReconcilePage.as_view(), name="reconcile"),
    path("agents", views_agents.AgentsPage.as_view(), name="agents"),
    path("agents/<str:graph_id>", views_agents.AgentPage.as_view(), name="agent"),
    path("fleet/recoveries", views_agents.RecoveriesPage.as_view(), name="recoveries"),
    path("fleet", views_agents.FleetPage.as_view(), name="fleet"),
]
