"""What somebody sends to say how they, or a queue, are told: API bodies, and the console's forms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ledger.web.bodies import Strict
from runs.services.bodies import SteerBody

Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Name = Annotated[str, Field(max_length=200)]
KindName = Annotated[str, Field(max_length=40)]
Ways = Annotated[list[Literal["email", "push", "browser"]], Field(max_length=3)]
Key = Annotated[str, Field(min_length=1, max_length=200)]


class PreferenceBody(Strict):
    """How you are told. A kind that isn't named is told as it is for everybody; quiet hours need both ends, or
    neither."""

    ways: Annotated[dict[KindName, Ways], Field(max_length=40)] = {}
    zone: Name = "UTC"
    quiet_from: Clock | None = None
    quiet_until: Clock | None = None
    digest: Literal["none", "hourly", "daily"] = "none"
    digest_at: Clock = "08:00"


class DeviceBody(Strict):
    """A subscription as the browser gives it (Push API)."""

    endpoint: Annotated[str, Field(min_length=1, max_length=2000)]
    p256dh: Key
    auth: Key


class ChannelBody(SteerBody):
    """A chat's webhook or a shared mailbox, for a queue, or with none named for what operators are told."""

    name: Name
    queue: Name = ""
    form: Literal["webhook", "mailbox"]
    address: Annotated[str, Field(max_length=2000)]
    kinds: Annotated[list[KindName], Field(max_length=40)]


class ChannelChangeBody(SteerBody):
    """What is named is set anew, the rest stays."""

    address: Annotated[str, Field(max_length=2000)] | None = None
    kinds: Annotated[list[KindName], Field(max_length=40)] | None = None
