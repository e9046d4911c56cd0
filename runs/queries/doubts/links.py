"""Where a person looks a call up in the other system: as its tool's author says."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from urllib.parse import urlsplit

from ledger import events as e
from runs.engine.errors import JournalBroken, brief
from runs.engine.tape import payload_of
from runs.models import Run, Wait
from runs.services.calls import told_at, tool_here
from runs.services.settling.upstream import name_of

log = logging.getLogger("runs.queries.doubts")
MOST = 2000


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
        return read(tool.link(tool.input.model_validate(payload_of(intent)["arguments"])))
    except JournalBroken as broken:
        log.warning("run %s: %s", run.pk, broken)
    except Exception as error:  # whatever the author's code does, the page is shown without it
        log.warning("run %s: the link of %s could not be made: %s", run.pk, tool.name, brief(error, 200))
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
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not host.isascii():
        return None
    return Link(given, host if port is None else f"{host}:{port}")
