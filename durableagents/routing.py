"""Which socket addresses there are."""

from django.urls import path

from runs.consumers import LiveConsumer

websocket_urlpatterns = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("ws/runs/<uuid:run_id>", LiveConsumer.as_asgi()),
]
