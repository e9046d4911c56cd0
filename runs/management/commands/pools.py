"""Budgets that many runs share, from a shell on the server."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from pydantic import ValidationError

from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from runs.management.shell import operator
from runs.models import Pool
from runs.queries.pools import Listed, listed, newest
from runs.services.bodies import PoolBody, PoolChangeBody
from runs.services.pools import acts


class Command(BaseCommand):
    help = "List, create and change pools: budgets that many runs share per period. Changes are recorded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="list active pools with their use and waiting calls")
        make = verbs.add_parser("make", help="create a pool")
        make.add_argument("name")
        make.add_argument("--scope", default="all", choices=[str(each) for each in Pool.Scope])
        make.add_argument("--whose", default="", help="the tag, agent, person or provider")
        make.add_argument(
            "--resource", required=True, choices=["usd", "tokens_in", "tokens_out", "model_calls", "tool_calls"]
        )
        make.add_argument("--limit", required=True)
        make.add_argument("--period", required=True, choices=[str(each) for each in Pool.Period])
        make.add_argument("--zone", default="UTC")
        change = verbs.add_parser("set", help="change a pool's limit")
        change.add_argument("pool", type=int, help="its number in `list`")
        change.add_argument("--limit", required=True)
        off = verbs.add_parser("off", help="switch a pool off permanently")
        off.add_argument("pool", type=int)
        for verb in (make, change, off):
            verb.add_argument("--justification", required=True)

    def handle(self, *, verb: str, **given: Any) -> None:
        """One line for each pool; or the pool that was changed. Raises CommandError for what can't be."""
        if verb == "list":
            for one in listed(newest(limit=acts.MOST)):
                self._tell(one)
            return
        by = operator()
        try:
            pool = self._act(verb, given, by)
        except DurableAgentsError as refused:
            raise CommandError(refused.detail) from None
        except ValidationError as refused:
            told = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in refused.errors(include_url=False)
            )
            raise CommandError(told) from None
        self._tell(listed([pool])[0])

    def _act(self, verb: str, given: dict[str, Any], by: Actor) -> Pool:
        if verb == "off":
            return acts.switch_off(given["pool"], by=by, justification=given["justification"])
        if verb == "set":
            body = PoolChangeBody(limit=given["limit"], justification=given["justification"])
            return acts.change(given["pool"], body, by=by)
        names = ("name", "scope", "whose", "resource", "limit", "period", "zone", "justification")
        return acts.create(PoolBody(**{name: given[name] for name in names}), by=by)

    def _tell(self, one: Listed) -> None:
        pool = one.pool
        whose = f" {one.of}" if one.of else ""
        state = "off" if pool.off_at is not None else f"{one.waiting} waiting"
        self.stdout.write(
            f"{pool.pk}\t{pool.name}\t{one.resource} of {pool.scope}{whose} each {pool.period} ({pool.zone})\t"
            f"{one.said(one.used)} used, {one.said(one.reserved)} set aside, of {one.said(one.most)}\t"
            f"refills {one.refills_at.isoformat()}\t{state}"
        )
