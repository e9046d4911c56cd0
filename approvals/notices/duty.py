"""What workers do about notices, beside driving runs: address them, send mail, send to chats; each in a thread of its
own, so that a server that hangs keeps nothing else waiting."""

from __future__ import annotations

from functools import partial

from approvals.notices import addressing, courier, tell
from runs.background import Duty, duties

ADDRESS, MAIL, CHAT, PUSH = "notices: addressing", "notices: mail", "notices: chats", "notices: phones"
FORGET = "notices: forgetting"


def plug_in() -> None:
    """Let workers do it, and hear of what only workers know."""
    tell.plug_in()
    duties.add(Duty(ADDRESS, addressing.IS_DUE, addressing.address_all, then=(MAIL, CHAT, PUSH)))
    duties.add(Duty(MAIL, courier.is_due(courier.BY_MAIL), partial(courier.carry, courier.BY_MAIL)))
    duties.add(Duty(CHAT, courier.is_due(courier.BY_CHAT), partial(courier.carry, courier.BY_CHAT)))
    duties.add(Duty(PUSH, courier.is_due(courier.BY_PUSH), partial(courier.carry, courier.BY_PUSH)))
    duties.add(Duty(FORGET, addressing.IS_OLD, addressing.retire))
