"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.schedules import api, services, views

api_urls = [
    path("schedules", api.Schedules.as_view(), name="api-schedules"),
    path("schedules/<uuid:schedule_id>", api.OneSchedule.as_view(), name="api-schedule"),
    *(
        path(
            f"schedules/<uuid:schedule_id>/{action}",
            api.SteerSchedule.as_view(action=action),
            name=f"api-schedule-{action}",
        )
        for action in api.SteerSchedule.operations
    ),
]

console_urls = [
    path("schedules", views.SchedulesPage.as_view(), name="schedules"),
    path("schedules/new", views.NewSchedule.as_view(), name="new_schedule"),
    path("schedules/<uuid:schedule_id>/changes", views.ScheduleChanges.as_view(), name="schedule_changes"),
]
for _name, _service, _done in (
    ("pauses", services.pause, "paused"),
    ("resumptions", services.resume, "resumed"),
    ("deletions", services.delete, "deleted"),
):
    _view = views.ScheduleAct.as_view(service=_service, act=_service.__name__, done=f"Schedule {_done}.")
    console_urls.append(path(f"schedules/<uuid:schedule_id>/{_name}", _view, name=f"schedule_{_name}"))
