"""Downloads of large values: event payloads, checkpoint states, views.
They are only for people who may read the run's payloads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ledger.api.present import masked
from ledger.api.views import event_file
from ledger.codec import unpack
from ledger.errors import DurableAgentsError, NotFound, RecordDamaged
from ledger.web.downloads import json_file
from ledger.web.page_base import Page
from ledger.web.seeing.payloads import must_read
from runs import features
from runs.models import Checkpoint
from runs.services.messages import reading


class CheckpointExpired(DurableAgentsError):
    """A retention policy removed the checkpoint."""

    status, code, title = 410, "checkpoint-expired", "The checkpoint expired"


class EventPayload(Page):
    """The payload of one event, as the API shows it."""

    section = "runs"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, run_id: UUID, seq: int) -> HttpResponseBase:
        return event_file(request, run_id, seq)


class CheckpointState(Page):
    section = "runs"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, run_id: UUID, seq: int) -> HttpResponseBase:
        must_read(run_id)
        row = Checkpoint.objects.filter(run_id=run_id, seq=seq).first()
        if row is None:
            expired = features.expired_checkpoints(run_id)
            if expired is not None and seq <= expired.last_seq:
                raise CheckpointExpired(f"{str(expired).capitalize()}.")
            raise NotFound("checkpoint", f"{seq} of run {run_id}")

        def read() -> Any:
            try:
                return unpack(row.state)
            except (ValueError, RecursionError) as error:
                raise RecordDamaged(run_id, f"a readable state of checkpoint {seq} ({error})") from error

        return json_file(request, f"{run_id}-checkpoint-{seq}.json", read)


class ViewValue(Page):
    section = "runs"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, run_id: UUID, name: str) -> HttpResponseBase:
        must_read(run_id)
        return json_file(request, f"{run_id}-{name}.json", lambda: masked(reading.read(run_id, name)))
