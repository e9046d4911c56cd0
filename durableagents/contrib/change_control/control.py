"""The core's port of two-person rules, as this app answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from durableagents.contrib.change_control import services, setting
from durableagents.contrib.change_control.models import RuleChange
from ledger.actors import Actor
from ledger.change_control import ChangeControl, Guarded


class TwoPersonRules(ChangeControl):
    """Changes of the families in the setting are proposed."""

    def is_guarded(self, family: str) -> bool:
        return setting.is_guarded(family)

    def hold(self) -> None:
        setting.hold()

    def propose(self, act: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any], by: Actor) -> UUID:
        return services.propose(act, args, kwargs, by)

    def find(self, change_id: str) -> RuleChange | None:
        return RuleChange.objects.filter(pk=change_id).first()
