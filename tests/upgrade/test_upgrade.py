"""A database that older code made: brought to today's shape by `migrate`, and its runs to their ends by today's
code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from approvals.models import Approval
from ledger.verification.registers import verify_registers
from ledger.web.roles import ROLES
from runs.engine.agents import registry
from runs.fleet import agent_versions
from runs.journal import digests
from runs.models import AgentVersion, Batch, Run
from tests.conftest import database_urls
from tests.runs.fold import check_against_journal
from tests.runs.stage import Stage, events, kinds
from tests.upgrade import (
    agents,
    agents_decided,
    agents_granted,
    agents_later,
    agents_moved,
    agents_overseen,
    agents_released,
    agents_steered,
    agents_talked,
)
from tests.upgrade.cast_overseen import post_office
from tests.upgrade.make import MASTER_KEY
from tests.upgrade.people import ENDS, Old, bring_to_their_ends, remembered
from tests.upgrade.people_decided import (
    Decided,
    bring_decided_to_their_ends,
    decided_well,
    is_as_it_was_set,
    remembered_decided,
)
from tests.upgrade.people_granted import (
    Granted,
    are_told_once,
    bring_granted_to_their_ends,
    come_in,
    granted_well,
    is_as_it_was_granted,
    links_of,
    remembered_granted,
)
from tests.upgrade.people_later import (
    Later,
    bring_later_to_their_ends,
    ended_well,
    let_out,
    remembered_later,
    started_by_the_clock,
    there_is_all_of_then,
    waits_as_it_should,
)
from tests.upgrade.people_moved import (
    are_replayed,
    can_not_be_moved,
    ended_by_its_version,
    fork,
    move,
)
from tests.upgrade.people_overseen import (
    Overseen,
    bring_overseen_to_their_ends,
    is_as_it_was_overseen,
    overseen_well,
    remembered_overseen,
)
from tests.upgrade.people_released import (
    Knowing,
    Released,
    bring_released_to_their_ends,
    goes_by_what_was_set,
    released_well,
    remembered_released,
)
from tests.upgrade.people_steered import (
    Steered,
    bring_steered_to_their_ends,
    is_as_it_was_steered,
    one_is_enough_again,
    remembered_steered,
    steered_well,
)
from tests.upgrade.people_talked import (
    Talked,
    bring_talked_to_their_ends,
    is_as_it_was_talked,
    remembered_talked,
    talked_well,
)
from tests.upgrade.places import (
    DUMPS,
    USUAL,
    Catalog,
    apps_of,
    as_then,
    catalog,
    contents,
    database,
    difference,
    django_on,
    leaves,
)

# A database of years with its runs to the end: minutes where others work beside it.
pytestmark = [pytest.mark.django_db, pytest.mark.timeout(1200)]
# They are known while a story of this file runs, and to nobody else in this process.
EVERY = (
    agents.agent, *agents_later.AGENTS, *agents_released.AGENTS, *agents_decided.AGENTS, *agents_overseen.AGENTS,
    *agents_talked.AGENTS, *agents_granted.AGENTS, *agents_steered.AGENTS,
)  # fmt: skip
KNOWN = (*EVERY, agents_moved.twin)  # in no dump
for each in KNOWN:
    registry.remove(each.graph_id)


def _commit(dump: Path) -> str:
    return dump.name.split(".")[0]


every_dump = pytest.mark.parametrize("dump", DUMPS, ids=_commit)
usual_dumps = pytest.mark.parametrize(
    "dump",
    [dump if _commit(dump) in USUAL else pytest.param(dump, marks=pytest.mark.long) for dump in DUMPS],
    ids=_commit,
)


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """The mark only says that a database is needed: these stories commit, each to a database of its own."""


@pytest.fixture(autouse=True)
def unblocked(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def new(postgres: Mapping[str, str]) -> Catalog:
    """What a database has that today's migrations made from nothing."""
    return catalog(database_urls(postgres)["admin"])


@pytest.fixture
def of_then(settings: Any, tmp_path: Path) -> Iterator[None]:
    """What belongs to an installation besides its database: its master key, and the agents it runs."""
    settings.DURABLEAGENTS_MASTER_KEY_FILE = tmp_path / "master.key"
    (tmp_path / "master.key").write_text(MASTER_KEY)
    digests.hasher.cache_clear()
    for each in KNOWN:
        registry.add(each)
    yield
    for each in KNOWN:
        registry.remove(each.graph_id)
    digests.hasher.cache_clear()


def migrate(url: str, *to: str) -> None:
    """As an operator does it: as the owner, who may take as long as it takes."""
    with django_on(url, "owner"):
        call_command("migrate", *to, verbosity=0, interactive=False)


def test_there_are_dumps() -> None:
    assert {*DUMPS} == {*DUMPS[0].parent.glob("*.sql.gz")} and len(DUMPS) >= 2
    assert all(dump.with_suffix("").with_suffix(".json").exists() for dump in DUMPS)


@every_dump
def test_an_older_database_becomes_what_a_new_one_is(postgres: Mapping[str, str], new: Catalog, dump: Path) -> None:
    with database(postgres, dump) as urls:
        before = catalog(urls["owner"])
        is_older = before["migrations"] != new["migrations"]
        assert is_older == bool(difference(before, new)) and (is_older or dump == DUMPS[-1]), "something to bring"
        migrate(urls["owner"])
        assert difference(catalog(urls["owner"]), new) == {}
        migrate(urls["owner"])
        assert difference(catalog(urls["owner"]), new) == {}, "a second time changes nothing"


def test_the_functions_that_changed_after_they_were_shipped_are_brought(
    postgres: Mapping[str, str], new: Catalog
) -> None:
    dump = next(each for each in DUMPS if each.name.startswith("46b5c85"))
    with database(postgres, dump) as urls:
        changed = {name.partition("(")[0] for name, _, _ in difference(catalog(urls["owner"]), new)["functions"]}
        assert changed >= {"runs_is_answered", "runs_intend", "runs_record"}


@usual_dumps
def test_nobody_knows_what_the_requests_of_then_have_cost(postgres: Mapping[str, str], dump: Path) -> None:
    with database(postgres, dump) as urls:
        migrate(urls["owner"])
        with psycopg.connect(urls["owner"]) as link:
            heads = link.execute("SELECT model_calls, unpriced_calls, usd_micro FROM ledger_head").fetchall()
    assert any(calls for calls, *_ in heads)
    assert all((unpriced, cost) == (calls, 0) for calls, unpriced, cost in heads)


@dataclass
class Dumped:
    """Every run of a dump, by the code whose situation it is in; those that started since come to them."""

    runs: list[Old]
    later: list[Later]
    released: list[Released]
    known: dict[str, str]  # which version each business key came out on
    decided: list[Decided]
    overseen: list[Overseen]
    talked: list[Talked]
    granted: list[Granted]
    steered: list[Steered]
    links: dict[str, str]  # to accounts

    @classmethod
    def of(cls, dump: Path) -> Dumped:
        released, known = remembered_released(dump)
        return cls(
            remembered(dump), remembered_later(dump), released, known, remembered_decided(dump),
            remembered_overseen(dump), remembered_talked(dump), remembered_granted(dump), remembered_steered(dump),
            links_of(dump),
        )  # fmt: skip

    @property
    def others(self) -> list[Later]:
        asked = [*self.decided, *self.overseen, *self.talked, *self.granted, *self.steered]
        return [*self.later, *self.released, *asked]


@usual_dumps
def test_every_run_of_an_older_database_comes_to_its_end_with_every_effect_once(
    postgres: Mapping[str, str], dump: Path, of_then: None, settings: Any, tmp_path: Path
) -> None:
    with database(postgres, dump) as urls:
        as_then(urls)
        # What a migration does to accounts is on record: by the clock of then, which what records it has to know first.
        migrate(urls["owner"], "durableagents", "0014_factors")
        as_then(urls)
        migrate(urls["owner"])
        as_then(urls)
        found = Dumped.of(dump)
        with django_on(urls["runtime"]):
            read_in_the_console(found.runs, found.others)
            is_all_sound()
            for each in found.later:
                waits_as_it_should(each)
            stage = Knowing()
            stage.is_strict = True  # as production is: a checkpoint of an older scheme is its own code's
            try:
                are_replayed(found.runs)
                moved = move(found.runs)
                go_on(stage, found, settings, tmp_path)
            finally:
                stage.close()
            for old in found.runs:
                ended_as_it_should(old)
                ended_by_its_version(old, is_moved=old in moved)
            for each in found.later:
                ended_well(each)
            for one in found.released:
                released_well(one, found.known)
            for each in found.decided:
                decided_well(each)
            for each in found.overseen:
                overseen_well(each)
            for each in found.talked:
                talked_well(each)
            for each in found.granted:
                granted_well(each)
            for each in found.steered:
                steered_well(each)
            is_all_sound()
            read_in_the_console(found.runs, found.others)


def go_on(stage: Stage, found: Dumped, settings: Any, folder: Path) -> None:
    """Everybody does what there is to do, until every run has ended."""
    if found.granted:
        go_on_with_the_newest(stage, found, settings, folder)
    if found.released:
        goes_by_what_was_set(stage, found.known)
        can_not_be_moved(found.released)
    if found.overseen:  # first: who drives it holds to what a halt put aside
        is_as_it_was_overseen(found.overseen)
        with post_office(settings) as box:
            bring_overseen_to_their_ends(stage, found.overseen, box)
    if found.talked:
        is_as_it_was_talked(found.talked)
        bring_talked_to_their_ends(stage, found.talked)
    if found.decided:
        is_as_it_was_set()
        bring_decided_to_their_ends(stage, found.decided)
    if found.later:
        there_is_all_of_then()
        let_out()
        bring_later_to_their_ends(stage, found.later)
        found.later.append(started_by_the_clock())
        bring_later_to_their_ends(stage, found.later)
    bring_to_their_ends(stage, found.runs)
    if found.released:
        found.released += bring_released_to_their_ends(stage, found.released)
    for name in ("completed", "released in mid-visit"):  # of then, and moved since
        fork(stage, next(old for old in found.runs if old.name == name))


def go_on_with_the_newest(stage: Stage, found: Dumped, settings: Any, folder: Path) -> None:
    """While two people settle and give roles, and after."""
    is_as_it_was_granted(found.granted)
    is_as_it_was_steered(found.steered)
    with post_office(settings) as box:
        are_told_once(box, settings, folder)
    come_in(found.links, is_guarded=True)
    bring_granted_to_their_ends(stage, found.granted)
    bring_steered_to_their_ends(stage, found.steered)
    one_is_enough_again()
    come_in(found.links, is_guarded=False)


@usual_dumps
def test_an_upgrade_of_the_product_is_no_change_of_an_agent(
    postgres: Mapping[str, str], dump: Path, of_then: None, settings: Any
) -> None:
    """Or production would quarantine every version there is, and strand all of its runs."""
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"stage": "production"})
    with database(postgres, dump) as urls:
        migrate(urls["owner"])
        with django_on(urls["runtime"]):
            known = set(AgentVersion.objects.values_list("pk", flat=True))
            found = Dumped.of(dump)
            newest = (found.granted, found.talked, found.overseen, found.decided, found.released, found.later, True)
            first = [bool(each) for each in newest].index(True)
            before = EVERY[:-2]
            alone = (EVERY[0], *EVERY[-2:])
            of_then = (alone, before, before[:-1], before[:-3], before[:-4], before[:4], before[:1])[first]
            assert {each.graph_id for each in of_then} <= known
            for each in of_then:
                agent_versions.note_use(each)


def ended_as_it_should(old: Old) -> None:
    state, effects = str(old.run.state), old.effects()
    assert state == ENDS.get(old.name, "completed"), (old.name, state)
    if state == "completed":
        assert effects == old.wanted(), old.name
    else:
        assert len(set(effects)) == len(effects) and set(effects) < set(old.wanted()), (old.name, effects)


def is_all_sound() -> None:
    """All that belongs to runs, and to none: every event can be read, every row is what the journals say."""
    for run in Run.objects.all():
        check_against_journal(run)
        assert [type(event).KIND for event in events(run)] == kinds(run)
    assert [problem for listed in verify_registers() for problem in listed.problems] == []


LISTS = (
    "/", "/inbox", "/runs", "/audit", "/pools", "/limits", "/schedules", "/agents", "/fleet", "/halts", "/bulk",
    "/reconcile", "/queues", "/queues/grants", "/queues/calendars", "/policies", "/changes", "/notifications",
    "/notifications/log",
)  # fmt: skip


def read_in_the_console(runs: list[Old], later: Sequence[Later]) -> None:
    """Every run has its page and its document, whatever it waits for."""
    user, _ = User.objects.get_or_create(username="everybody")
    user.groups.set(Group.objects.filter(name__in=ROLES))
    client = Client()
    client.force_login(user)
    ours = [(old.name, old.id) for old in runs]
    for name, id in ours + [(each.name, run.id) for each in later for run in each.family]:
        for path in (f"/runs/{id}", f"/api/v1/runs/{id}", f"/api/v1/runs/{id}/events"):
            assert client.get(path).status_code == 200, (name, path)
    asked = [f"/inbox/{id}" for id in Approval.objects.values_list("pk", flat=True)]
    for path in (*LISTS, *asked, *(f"/bulk/{id}" for id in Batch.objects.values_list("pk", flat=True))):
        assert client.get(path).status_code == 200, path


# The way back is the same for all that were made under the same migrations.
@pytest.mark.parametrize(
    "dump",
    [DUMPS[0], *(pytest.param(dump, marks=pytest.mark.long) for dump in DUMPS[1:-1]), DUMPS[-1]],
    ids=_commit,
)
def test_what_was_brought_can_be_taken_back_and_brought_again(
    postgres: Mapping[str, str], new: Catalog, dump: Path
) -> None:
    with database(postgres, dump) as urls:
        before, rows = catalog(urls["owner"]), contents(urls["owner"])
        migrate(urls["owner"])
        with django_on(urls["owner"], "owner"):
            back = leaves(before["migrations"])
            plan = MigrationExecutor(connection).migration_plan(back)
            stuck = [f"{m.app_label}.{m.name}" for m, _ in plan if not all(o.reversible for o in m.operations)]
            assert stuck == [], "a migration that can't be taken back says so in its docstring and is excepted here"
        for app, name in [*back, *((app, "zero") for app in BORROWED if app not in apps_of(before["migrations"]))]:
            migrate(urls["owner"], app, name)
        apart = difference(catalog(urls["owner"]), before)
        # The older text of a function is nowhere any more; and rights are given anew after each migration.
        assert apart.keys() <= {"functions", "grants"}
        # A trigger that is taken back leaves its function, which nothing calls any more.
        strangers = {name for name, now, then in apart.get("functions", []) if now is None or then is None}
        assert {name for name in strangers if "pgtrigger_" not in name} == set()
        left = contents(urls["owner"])
        for table in ON_RECORD:  # what an upgrade did to accounts stays on record, behind what was there
            now, then = left.pop(table, []), rows.pop(table, [])
            assert table == "ledger_register" or {*now} >= {*then}
        # So do queues that the settings name and nobody had seen there; each of those before is as it was.
        seeded = {*left.get(QUEUES, [])} - {*rows.get(QUEUES, [])}
        assert all("system:settings" in row for row in seeded)
        left[QUEUES] = [row for row in left.get(QUEUES, []) if row not in seeded]
        assert left == {QUEUES: [], **rows}
        migrate(urls["owner"])
        assert difference(catalog(urls["owner"]), new) == {}


# Apps of others that came later, those first that need the others.
BORROWED = ("mfa", "socialaccount", "account")


ON_RECORD = ("ledger_accountrecord", "ledger_register")
QUEUES = "approvals_queue"


def test_a_database_from_before_signals_is_refused_by_name(postgres: Mapping[str, str]) -> None:
    with database(postgres, DUMPS[0]) as urls:
        with psycopg.connect(urls["owner"]) as owner:
            owner.execute("DROP TABLE runs_signal CASCADE")
        with pytest.raises(Exception, match="from before signals, which can not be upgraded"):
            migrate(urls["owner"])
        assert "runs.0004_functions_anew" not in catalog(urls["owner"])["migrations"]
