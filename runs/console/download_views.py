"""Downloads of large values (event payloads, checkpoint states, views), for readers of the run's payloads."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from ledger.api.present import masked, payload_of
from ledger.codec import unpack
from ledger.errors import NotFound, RecordDamaged
from ledger.models import Event
from ledger.web.page_base import Page
from ledger.web.renderers import json_file
from ledger.web.seeing.payloads import is_open, must_read
from runs.models import Checkpoint
from runs.services.messages import reading


class EventPayload(Page):
    """The payload of one event, as the API shows it."""

    section = "runs"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, run_id: UUID, seq: int) -> HttpResponse:
        event = Event.objects.filter(run_id=run_id, seq=seq).first()
        if event is None or not is_open(event.kind):
            must_read(run_id)
        if event is None:
            raise NotFound("event", f"{seq} of run {run_id}")
        try:
            payload = payload_of(event)
        except (ValueError, RecursionError) as error:
            raise RecordDamaged(run_id, f"a payload of event {seq} that can be read ({error})") from error
        return json_file(payload, f"{run_id}-event-{seq}.json")


class CheckpointState(Page):
    section = "runs"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, run_id: UUID, seq: int) -> HttpResponse:
        must_read(run_id)
        row = Checkpoint.objects.filter(run_id=run_id, seq=seq).first()
        if row is None:
            raise NotFound("checkpoint", f"{seq} of run {run_id}")
        try:
            state = unpack(row.state)
        except (ValueError, RecursionError) as error:
            raise RecordDamaged(run_id, f"a state of checkpoint {seq} that can be read ({error})") from error
        return json_file(state, f"{run_id}-checkpoint-{seq}.json")


class ViewValue(Page):
    section = "runs"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, run_id: UUID, name: str) -> HttpResponse:
        must_read(run_id)
        return json_file(masked(reading.read(run_id, name)), f"{run_id}-{name}.json")
