"""Where a person looks a call up in the other system: as its tool's author says."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from ledger import events as e
from ledger.errors import DurableAgentsError
from runs.engine.errors import JournalBroken, brief
from runs.engine.tape import payload_of
from runs.models import Run, Wait
from runs.services.calls import told_at, tool_here
from runs.services.messages.reading import in_time
from runs.services.settling.senders import name_of

log = logging.getLogger("runs.queries.doubts")
MOST = 2000
SECONDS = 0.5  # that the author's function has
_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z](?:[a-z0-9-]*[a-z0-9])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Link:
    """An address in another system. `host` is said beside it: who follows it sees where it leads."""

    url: str
    host: str


def link_of(run: Run, wait: Wait) -> Link | None:
    """Where the call is looked up that a wait is about. None where its tool says nothing of that, isn't here, or says
    what is no address of a web page; none of that keeps anybody from settling it."""
    tool = tool_here(run, name_of(wait))
    if tool is None or tool.link is None:
        return None
    try:
        told = told_at(run.pk, wait.slot)
        intent = next(x for x in reversed(told) if isinstance(x, e.ToolInvoked) and x.attempt == wait.attempt)
        args = tool.input.model_validate(payload_of(intent)["arguments"])
        return read(in_time(f"link of {tool.name}", partial(tool.link, args), SECONDS))
    except (JournalBroken, DurableAgentsError, StopIteration, KeyError, ValueError) as error:
        # Whatever the author's code does, and whatever stands there, the page is shown without it.
        log.warning("run %s: no link to a call of %s: %s", run.pk, tool.name, brief(error, 200))
    return None


def read(given: object) -> Link | None:
    """An address that leads to a web page, and shows nobody another host than it leads to. None for anything else."""
    if not isinstance(given, str) or not 0 < len(given) <= MOST:
        return None
    if any(character.isspace() or not character.isprintable() for character in given) or "\\" in given:
        return None
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not _is_plain(host):
        return None
    return Link(given, host if port is None else f"{host}:{port}")


def _is_plain(host: str) -> bool:
    """Whether a browser goes to the host that stands there: a name of plain letters, or an address written in full."""
    if _NAME.fullmatch(host):
        return True
    try:
        return str(ip_address(host)) == host
    except ValueError:
        return False
