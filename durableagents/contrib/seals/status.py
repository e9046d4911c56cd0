"""The state of sealing, for `manage.py seals status`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db import transaction

from durableagents.contrib.seals.keyring import key_problems
from durableagents.contrib.seals.models import Seal, SealKey
from durableagents.contrib.seals.sealing import Moment, has_moved
from durableagents.contrib.seals.witnesses import WitnessStatus, status_of


def lines() -> Iterator[str]:
    """Yield a line about the key, one about the last seal, and one about each witness."""
    key = SealKey.objects.order_by("-number").first()
    if key is not None:
        yield f"key {key.number}: {bytes(key.public_key).hex()}, since {key.made_at:%Y-%m-%d %H:%M} UTC"
    last = Seal.objects.order_by("-number").first()
    if last is not None:
        yield f"seal {last.number}: {last.at:%Y-%m-%d %H:%M:%S} UTC, {last.count} head(s), {last.record.hash.hex()}"
    for state in _witnesses():
        when = f", at {state.taken_at:%Y-%m-%d %H:%M:%S} UTC" if state.taken_at else ""
        yield f"witness {state.name}: seal {state.taken}{when}" + (f"; {state.error}" if state.error else "")


def problems() -> list[str]:
    """Return the problems that an operator must solve."""
    found = key_problems(list(SealKey.objects.order_by("number")))
    if not settings.DURABLEAGENTS.seal_witnesses:
        found.append(
            "no witness is configured, so the database's owner could delete the last seals: "
            "set DURABLEAGENTS_SEAL_WITNESSES"
        )
    found += [state.problem for state in _witnesses() if state.problem]
    if late := _late():
        found.append(late)
    return found


def _witnesses() -> list[WitnessStatus]:
    return [status_of(witness) for witness in settings.DURABLEAGENTS.seal_witnesses]


@transaction.atomic
def _late() -> str:
    """Return a problem if heads moved but were not sealed; empty if there is none."""
    last, moment = Seal.objects.order_by("-number").first(), Moment.now()
    minutes = settings.DURABLEAGENTS.seal_stale_minutes
    if last is not None and moment.at - last.at < timedelta(minutes=minutes):
        return ""
    if not has_moved(moment, last, older_than=moment.at - timedelta(minutes=minutes)):
        return ""
    since = f"since {last.at:%Y-%m-%d %H:%M} UTC" if last else "yet"
    return f"runs progressed, but nothing was sealed {since}: check that workers are running, and read their logs"
