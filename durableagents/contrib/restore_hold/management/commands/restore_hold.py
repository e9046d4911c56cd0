"""`manage.py restore_hold status|check|place|lift`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from pydantic import ValidationError

from durableagents.contrib.halts import services as halts
from durableagents.contrib.halts.services import LiftBody, StageBody
from durableagents.contrib.restore_hold import database, heads, holding
from durableagents.contrib.restore_hold.comparing import DAMAGED, Hold, compare, lsn_text
from durableagents.contrib.restore_hold.doubts import find_doubts
from durableagents.contrib.restore_hold.heads import Head, HeadDamaged
from durableagents.contrib.restore_hold.marking import is_on
from durableagents.contrib.restore_hold.models import Finding
from ledger.append import justified
from ledger.errors import DurableAgentsError, JustificationRequired, first_line
from runs.management.shell import operator
from runs.models import RunTag
from runs.queries.code_here import is_known_agent

_NOT_HELD = "not held"


class Command(BaseCommand):
    help = "The hold of a restored database: exit code 1 if it is or will be held, 2 if this is unknown."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("status", help="this host's head, the database, the hold, and calls with unknown outcomes")
        verbs.add_parser("check", help="compare now, as a worker does when it starts, and hold if needed")
        new = verbs.add_parser("place", help="hold the installation until an operator lifts it")
        lift = verbs.add_parser("lift", help="lift the hold by agent or tag, or completely")
        lift.add_argument("--all", action="store_true", help="lift it completely")
        lift.add_argument("--agent", action="append", default=[], help="may be given several times")
        lift.add_argument("--tag", action="append", default=[], help="may be given several times")
        for verb in (new, lift):
            verb.add_argument("--reason", required=True, help="on record")

    def handle(self, *, verb: str, **given: Any) -> None:
        """Run the chosen verb."""
        try:
            match verb:
                case "status":
                    self._status()
                case "check":
                    self._check()
                case "place":
                    halt = holding.place(justified("halt", given["reason"]), by=operator())
                    self.stdout.write(f"Held by halt {halt}. Workers register, but send nothing.")
                case _:
                    self._lift(**given)
        except JustificationRequired as refused:
            raise CommandError(refused.detail, returncode=2) from None
        except DurableAgentsError as refused:
            raise CommandError(refused.detail, returncode=2) from None
        except ValidationError as refused:
            errors = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in refused.errors(include_url=False))
            raise CommandError("; ".join(errors), returncode=2) from None
        except OSError as error:
            raise CommandError(f"{heads.path()}: {error.strerror}", returncode=2) from None
        except Error as error:
            raise CommandError(first_line(error), returncode=2) from None

    def _status(self) -> None:
        line = ""
        for line in _lines():
            self.stdout.write(line)
        if line != _NOT_HELD:
            raise SystemExit(1)

    def _check(self) -> None:
        verdict = holding.settle()
        if isinstance(verdict, Hold):
            self.stdout.write(f"held: {verdict.text}")
            raise SystemExit(1)
        self.stdout.write("the database has everything that this host knows")

    def _lift(self, *, reason: str, all: bool, agent: list[str], tag: list[str], **_: Any) -> None:
        if all == bool(agent or tag):
            raise CommandError("give --all, or one or more of --agent and --tag", returncode=2)
        hold = holding.find_hold()
        if hold is None:
            raise CommandError("nothing is held", returncode=2)
        by = operator()
        if all:
            halts.lift(hold.halt, LiftBody(justification=reason, revision=None), by=by)
            self.stdout.write("The hold is lifted. Runs continue within seconds.")
            return
        if unknown := _named(
            [each for each in agent if not is_known_agent(each)], [each for each in tag if not _is_tag(each)]
        ):
            problem = f"unknown name: {', '.join(unknown)}. The hold was not changed; correct the name"
            raise CommandError(problem, returncode=2)
        # Passes the revision that was read, so that the names printed as held again really are those that this stage no
        # longer includes.
        body = StageBody(justification=reason, share=None, agents=agent, tags=tag, revision=hold.n)
        halts.stage(hold.halt, body, by=by)
        named = _named(agent, tag)
        self.stdout.write(f"The hold is lifted for {', '.join(named)}. All other runs stay held.")
        before = [*([f"{hold.share / 100:g}% of the runs"] if hold.share else []), *_named(hold.agents, hold.tags)]
        if again := [each for each in before if each not in named]:
            self.stdout.write(f"It no longer is for {', '.join(again)}.")


def _without_mark(head: Head | HeadDamaged | None) -> str:
    """Return why this host's head names no mark.

    When a hold is placed, a damaged file is replaced by one that only names the hold."""
    if isinstance(head, HeadDamaged):
        return f"{head}"
    hold = holding.find_hold()
    found = Finding.objects.filter(halt=hold.halt, reason=DAMAGED) if hold is not None else Finding.objects.none()
    if head is not None and found.filter(host=head.host).exists():
        return f"damaged: the file was kept as {heads.path().name}.damaged"
    return "missing"


def _named(agents: Iterable[str], tags: Iterable[str]) -> list[str]:
    return [*(f"agent {_plain(name)}" for name in agents), *(f"tag {_plain(name)}" for name in tags)]


def _is_tag(tag: str) -> bool:
    return RunTag.objects.filter(tag=tag).exists()


def _lines() -> Iterator[str]:
    head = holding.read_head()
    known = database.read_database(head)
    if not is_on():
        yield "off: DURABLEAGENTS_RESTORE_HOLD=0, so a restored database is not detected"
    if isinstance(head, Head) and head.line is not None:
        where = f"timeline {head.timeline}, {lsn_text(head.lsn)}"
        yield f"head\t{heads.path()}\tmark {head.number}\t{where}\tsystem {head.system}"
    else:
        yield f"head\t{heads.path()}\t{_without_mark(head)}"
    where = f"timeline {known.timeline}, {lsn_text(known.lsn)}"
    yield f"database\tmark {known.number} by {known.host_name or 'nobody'}\t{where}\tsystem {known.system}"
    verdict = compare(head, known)
    yield f"compared\t{verdict.text}" if isinstance(verdict, Hold) else "compared\tno contradiction"
    hold = holding.find_hold()
    if hold is None:
        will_hold = isinstance(verdict, Hold) and is_on()
        yield "not held yet\tthe next worker that starts on this host holds all runs" if will_hold else _NOT_HELD
        return
    yield f"held\t{hold.halt}\tsince {hold.since:%Y-%m-%d %H:%M} UTC\tby {hold.by}\t{_plain(hold.why)}"
    if hold.is_staged:
        yield "\t".join(["lifted for", *_named(hold.agents, hold.tags)])
    for each in holding.findings_of(hold.halt):
        yield f"found\t{_plain(each.host_name)}\t{each.reason}\thead: mark {each.head.get('number')}"
    unknown_outcomes = find_doubts()
    for call in unknown_outcomes.upcoming:
        tools, near = ", ".join(call.tools) or "unknown", "\tnear the end of the record" if call.is_near else ""
        yield _plain(f"next\t{call.run}\t{call.agent}\t{call.node}\t{tools}\t{call.state}") + near
    for open_call in unknown_outcomes.unanswered:
        what = f"{open_call.tool}\t{open_call.slot}\t{open_call.replay_class}"
        yield _plain(f"no outcome\t{open_call.run}\t{open_call.agent}\t{what}")
    if unknown_outcomes.is_cut:
        yield "there are more"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
