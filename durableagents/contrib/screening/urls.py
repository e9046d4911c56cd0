"""URL of this app below /api/v1."""

from django.urls import path

from durableagents.contrib.screening.api import Withheld

api_urls = [path("runs/<uuid:run_id>/withheld", Withheld.as_view(), name="api-run-withheld")]
