"""URLs of this app's pages."""

from django.urls import path

from durableagents.contrib.schedules import services, views

urlpatterns = [
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
    urlpatterns.append(path(f"schedules/<uuid:schedule_id>/{_name}", _view, name=f"schedule_{_name}"))
