"""Which socket addresses there are."""

from django.urls import path, re_path

from runs.console.sockets import ListConsumer, LiveConsumer, NowhereConsumer

websocket_urlpatterns = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/lists", ListConsumer.as_asgi()),
    path("ws/runs/<uuid:run_id>", LiveConsumer.as_asgi()),
    # The router raises where nothing fits: a traceback for whoever cares to try addresses.
    re_path("", NowhereConsumer.as_asgi()),
]
