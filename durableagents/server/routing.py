"""WebSocket routes."""

from django.urls import path, re_path

from runs.console.sockets import ListConsumer, LiveConsumer, NowhereConsumer

websocket_urlpatterns = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/lists", ListConsumer.as_asgi()),
    path("ws/runs/<uuid:run_id>", LiveConsumer.as_asgi()),
    # Without a matching route the router raises, which would log a traceback for every scan.
    re_path("", NowhereConsumer.as_asgi()),
]
