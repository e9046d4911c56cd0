"""The runs' pages. Acts are nouns that are POSTed to: each leaves a record of that name."""

from django.urls import path

from runs.console import agent_views, download_views, run_views, start_views
from runs.console.bulk import views as bulk
from runs.console.fleet import views as fleet
from runs.console.forks import views as forks
from runs.console.halts import views as halts
from runs.console.injecting import views as injecting
from runs.console.limits import limit_views
from runs.console.migrating import views as migrating
from runs.console.pools import views as pool_views
from runs.console.releases import views as releases
from runs.console.settling import views as settling
from runs.console.starts import schedule_views

urlpatterns = [
    path("runs", run_views.RunsPage.as_view(), name="runs"),
    path("runs/new", start_views.StartPage.as_view(), name="start"),
    path("bulk", bulk.BatchesPage.as_view(), name="batches"),
    path("bulk/new", bulk.NewBatchPage.as_view(), name="new_batch"),
    path("bulk/<uuid:batch_id>", bulk.BatchPage.as_view(), name="batch"),
    path("bulk/<uuid:batch_id>/starts", bulk.BatchStarts.as_view(), name="batch_starts"),
    path("bulk/<uuid:batch_id>/stops", bulk.BatchStops.as_view(), name="batch_stops"),
    path("runs/<uuid:run_id>", run_views.RunPage.as_view(), name="run"),
    path("runs/<uuid:run_id>/pauses", run_views.Pauses.as_view(), name="pauses"),
    path("runs/<uuid:run_id>/resumptions", run_views.Resumptions.as_view(), name="resumptions"),
    path("runs/<uuid:run_id>/cancellations", run_views.Cancellations.as_view(), name="cancellations"),
    path("runs/<uuid:run_id>/retries", run_views.Retries.as_view(), name="retries"),
    path("runs/<uuid:run_id>/requeues", run_views.Requeues.as_view(), name="requeues"),
    path("runs/<uuid:run_id>/context", injecting.ContextPage.as_view(), name="context"),
    path("runs/<uuid:run_id>/context/looks", injecting.ContextLooks.as_view(), name="context_looks"),
    path(
        "runs/<uuid:run_id>/context/resumptions",
        injecting.ContextActs.as_view(action="resume"),
        name="context_resumptions",
    ),
    path("runs/<uuid:run_id>/context/retries", injecting.ContextActs.as_view(action="retry"), name="context_retries"),
    path("runs/<uuid:run_id>/fork", forks.ForkPage.as_view(), name="fork"),
    path("runs/<uuid:run_id>/forks", forks.Forks.as_view(), name="forks"),
    path("runs/<uuid:run_id>/start-again", forks.StartAgainPage.as_view(), name="start_again"),
    path("runs/<uuid:run_id>/new-starts", forks.NewStarts.as_view(), name="new_starts"),
    path("runs/<uuid:run_id>/reconciliations", settling.Reconciliations.as_view(), name="reconciliations"),
    path(
        "runs/<uuid:run_id>/reconciliations/withdrawals",
        settling.TakenBack.as_view(),
        name="reconciliation_withdrawals",
    ),
    path("runs/<uuid:run_id>/reconciliations/similar", settling.SimilarPage.as_view(), name="similar_outcomes"),
    path("runs/<uuid:run_id>/reconciliations/askings", settling.Askings.as_view(), name="reconciliation_askings"),
    path("runs/<uuid:run_id>/budgets", run_views.Budgets.as_view(), name="budgets"),
    path("runs/<uuid:run_id>/models", run_views.Models.as_view(), name="models"),
    path("runs/<uuid:run_id>/answers/<uuid:wait_id>", run_views.Answers.as_view(), name="answers"),
    path("schedules", schedule_views.SchedulesPage.as_view(), name="schedules"),
    path("schedules/new", schedule_views.NewSchedule.as_view(), name="new_schedule"),
    path("schedules/<uuid:schedule_id>/changes", schedule_views.ScheduleChanges.as_view(), name="schedule_changes"),
    path("schedules/<uuid:schedule_id>/pauses", schedule_views.SchedulePauses.as_view(), name="schedule_pauses"),
    path(
        "schedules/<uuid:schedule_id>/resumptions",
        schedule_views.ScheduleResumptions.as_view(),
        name="schedule_resumptions",
    ),
    path(
        "schedules/<uuid:schedule_id>/deletions",
        schedule_views.ScheduleDeletions.as_view(),
        name="schedule_deletions",
    ),
    path("pools", pool_views.PoolsPage.as_view(), name="pools"),
    path("pools/new", pool_views.NewPool.as_view(), name="new_pool"),
    path("pools/<int:pool_id>/limits", pool_views.PoolLimits.as_view(), name="pool_limits"),
    path("pools/<int:pool_id>/closings", pool_views.PoolClosings.as_view(), name="pool_closings"),
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
    path("agents/<str:graph_id>/versions", releases.VersionsPage.as_view(), name="versions"),
    path("agents/<str:graph_id>/closings", releases.VersionClosings.as_view(), name="version_closings"),
    path("agents/<str:graph_id>/openings", releases.VersionOpenings.as_view(), name="version_openings"),
    path("agents/<str:graph_id>/migrations", migrating.MigrationsPage.as_view(), name="migrations"),
    path("agents/<str:graph_id>/migrations/looks", migrating.MigrationLooks.as_view(), name="migration_looks"),
    path("agents/<str:graph_id>/migrations/acts", migrating.Migrating.as_view(), name="migrating"),
    path("agents/<str:graph_id>/ramps", releases.NewRamp.as_view(), name="new_ramp"),
    path("ramps/<int:ramp_id>/shares", releases.RaiseRamp.as_view(), name="ramp_shares"),
    path("ramps/<int:ramp_id>/resumptions", releases.SteerRamp.as_view(action="resume"), name="ramp_resumptions"),
    path("ramps/<int:ramp_id>/rollbacks", releases.SteerRamp.as_view(action="rollback"), name="ramp_rollbacks"),
    path("ramps/<int:ramp_id>/completions", releases.SteerRamp.as_view(action="finish"), name="ramp_completions"),
    path("fleet/recoveries", agent_views.RecoveriesPage.as_view(), name="recoveries"),
    path("limits", limit_views.LimitsPage.as_view(), name="limits"),
    path("limits/settings", limit_views.LimitSettings.as_view(), name="limit_settings"),
    path("limits/resets", limit_views.LimitResets.as_view(), name="limit_resets"),
    path("limits/openings", limit_views.BreakerOpenings.as_view(), name="breaker_openings"),
    path("limits/closings", limit_views.BreakerClosings.as_view(), name="breaker_closings"),
    path("halts", halts.HaltsPage.as_view(), name="halts"),
    path("halts/new", halts.NewHalt.as_view(), name="new_halt"),
    path("halts/<uuid:halt>/stages", halts.HaltStages.as_view(), name="halt_stages"),
    path("halts/<uuid:halt>/liftings", halts.HaltLiftings.as_view(), name="halt_liftings"),
    path("fleet/deaths", fleet.Deaths.as_view(), name="host_deaths"),
    path("fleet/drains", fleet.Drains.as_view(), name="worker_drains"),
    path("fleet/acts", fleet.FleetActsPage.as_view(), name="fleet_acts"),
    path("fleet", agent_views.FleetPage.as_view(), name="fleet"),
]
