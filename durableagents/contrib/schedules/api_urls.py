"""Addresses below /api/v1."""

from django.urls import path

from durableagents.contrib.schedules import api

urlpatterns = [
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
