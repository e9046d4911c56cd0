"""Each SQL file belongs to one migration, which brings exactly what the file says and can take it away again."""

from __future__ import annotations

import hashlib
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddIndex, CreateModel

from ledger import sqlfiles
from tests.conftest import CHECKOUT

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("db")]
# What was shipped, with its digest: a database that exists has it, so it never changes again. What changes a function
# is a new file `sql/NNNN_name.sql` with the migration `migrations/NNNN_name.py`, written down here when it lands.
SHIPPED = {
    "approvals/sql/0137_taken_back.sql": "1b4759e5c0015a4eaa27aac7e4a944a45f25f025d30c4dc1cd7098bfc960b330",
    "runs/sql/0121_stood_in_its_version.sql": "062fb2a049a730febcf1c85f3cb8a1b5ed4de34002eb28f794b07945561e261a",
    "approvals/sql/0135_standing_grants.sql": "12d9c44940c3da30a685f606b60465ce12602086247c715f4e7940e71c1f4818",
    "approvals/sql/0130_claims.sql": "4511a3725ede81f480a1b4da0dc160ea5abf50f089401f25c86671fa0ee6eb2f",
    "runs/sql/0073_starts_under_halts.sql": "3b7bae5f8d772a3e90a3cdb67a4e4f1d8ce87b4d2400bf54a61a991983b33e92",
    "runs/sql/0072_standing_still.sql": "f3bdcde2820960846ef2c77f4f92f7406f69eefb5af1f0c7f5773fdd6e61e015",
    "runs/sql/0071_claims_under_halts.sql": "52fd6fb1863435d6eda9f86e36718cba99c8909121efc9132f7d67e27ee24812",
    "runs/sql/0070_halts.sql": "edc9f94618c94dcbebf99fc12a2b07a4909572c7e1bd0fddbf5f97333ce5125e",
    "ledger/sql/0004_codes.sql": "c51f23941547106ed2785758fa6df39b19b14c74201c9bc9ded6e6444167232c",
    "ledger/sql/0010_registers.sql": "98766363256959ab2f213a5e71634ecc23dff957bbe286d13d83daf56e82a416",
    "ledger/sql/0012_budgets.sql": "8b7c697ab218d006e42766b9f62869b909ce9ba2c39454ae9e0245cfd634fcb6",
    "ledger/sql/0016_journal_size.sql": "dec235262d24ced31e7014e0fd766b242de94bb86506ab1c50677e94254fed44",
    "ledger/sql/append.sql": "526f385e4a8cca4bf6b5f0995fecae36dc38a17974985c561337efbbaea8dc8c",
    "runs/sql/0004_functions_anew.sql": "2459d8c6a7f4b908e96ae55f0ead17866dfcfc8d00bf504917f849c3c520f48d",
    "runs/sql/0007_claims.sql": "8c7939c4cb2ac5c2fa50b2ec5307b014582637bd401a18efed070c32fb910b84",
    "runs/sql/0005_grants.sql": "d93f63d130f2c72e0b921271728908cdfcc71f17f2be90bec9af1eddc14f8bef",
    "runs/sql/0015_steps.sql": "2eab0b5900a14df8fcacfc282946f7e39a81b81bc8dfa3f0df6274df77f7132c",
    "runs/sql/0016_steps.sql": "15531dbe11383736a6c3f75159a3342d5a09ecbf33a244111544236b9de75beb",
    "runs/sql/0017_budgets.sql": "fc03d92a45d690b9cd6aff6a6c6da763968f7b233a286c364e8036d7cd867ea6",
    "runs/sql/0018_steps.sql": "a1d3c15dab8d753c9be3584e25c93fd7291fbb5173a430e8235b5a036acd181a",
    "runs/sql/0020_children.sql": "7e5a5bb29d25c5ccec5368a65aded5d57b3278182b0e081c53450e81c46280bc",
    "runs/sql/0024_planned.sql": "02700d51150a3494abcb437855d608d284aaccf3e0c1d8ab512ca081601a3b66",
    "runs/sql/0027_limits.sql": "aca0ada2577ebe075a564b7457a55be2922a878245b32a68c54504349bd74f9d",
    "runs/sql/0028_shares.sql": "3bf6a748c5065df6399163cce5a3423dc64fd925bf951550024f7a4a7b19bce8",
    "runs/sql/0030_succession.sql": "39209d1dca4efafadfb877b450e931c34f55801a8830d45fd9e886f940f36383",
    "runs/sql/0033_limit_patterns.sql": "6473308406d3f6f9b84bfb5d9ce46f1f7f20c04dcdc0d33ab095953d879bb1aa",
    "runs/sql/0038_releases.sql": "410aa0eadaf7cb955c120e4453b7cbd1a373746707bbd170d01169d5080e8cd0",
    "runs/sql/0043_migrated.sql": "b8c0ec33d6a206cd8ad1da70c3d15eee2cbffbb8601adcdafea3ae1f0f925945",
    "runs/sql/0039_drains.sql": "26074e4ae18ea8a76ef292b6a14eef3f41517f5501a6b6c1553ffccfc7e7f90f",
    "runs/sql/0049_judged.sql": "0b925f9544e124ed0c5a0c11d095731cc538826699195fab18f8047e4700e00f",
    "runs/sql/0022_attributes.sql": "68d15c0a212ef57d2adbf225adbf59a74cd9078cdd995342fcf1f31eee891283",
    "runs/sql/0023_messages.sql": "429e2b76960f4a0a130dc6131350bd00b5131fe1940ea2e5406ded2b556e1820",
    "runs/sql/0014_starts.sql": "fcd5462dc821139e49dfe32a45155ef0df29b1376965b36914a9a334fe797775",
    "runs/sql/0026_pools.sql": "e1e2e9dd73a365834a77dae46a595565081323ac11a56d1b3ae9d345fa8687ed",
    "approvals/sql/0009_asked.sql": "03c151a50fd9ef4498099ab423e980018f11ca52caabd5fe60412bafdbbdc578",
    "durableagents/sql/0002_accounts.sql": "9b31274b7a26d3fc0744899837063d839333fc05da172447842f65bc2ee9cfb5",
    "durableagents/sql/0007_key_budget.sql": "9fbf37c22e48e9817c6aa59aeda73c4e1acf7cc95963f2341b80a1db93012592",
    "durableagents/sql/0008_document.sql": "bb9e49e2488de118e6221f4b6498120f0c5be6812443bdfda906cfcff8e53c27",
    "durableagents/sql/0014_factors.sql": "18cc7d90f9ebc189d18f6cadcab9ed7fb953c264cbb5184c57f17d6900af5cc9",
    "durableagents/sql/0009_own_tags.sql": "fdd91181a26cbe84e405b47bd31bcf188124413a75809f4994838f30a7697fd1",
    "durableagents/sql/0150_passkeys.sql": "a64ff54279b226e455a00dee15f13081dc1afec19e21f10cb241108af32ea457",
    "approvals/sql/0060_notices.sql": "9ed67ef4ca159e191bae78064747d8cf50a990de5bf377cf12d62889256c4230",
    "runs/sql/0053_run_tags.sql": "d3110d121fec7bc40dc14403334bc3992a4e6b7d37787bb66855be0f8077d10c",
    "runs/sql/0060_policies.sql": "17ae267d2b7f916de08a432ae51822b2f5f5a1724a4587925d8978393603c448",
    "approvals/sql/0030_seats.sql": "b26787133bccd4cd774cdecb77cf85204d0631caddcb834d8de80cb6e152b224",
    "runs/sql/0034_undo.sql": "dc43935819143e216b590ecd0e7addc147d06e78c1f6bb08b09cd29b029b37fa",
    "runs/sql/signals.sql": "261f3afeec06204cc44dad64081ecf7cfb2ae351b42cbd5bc731b5b00adb7c4a",
    "runs/sql/steps.sql": "e5728a80ac461c1d22116da9149ab699e17ef889c7bc300a4f85d57b26b05a72",
}
# Files from before they were numbered.
PAIRS = {
    "ledger/sql/append.sql": "ledger.migrations.0002_sql",
    "runs/sql/signals.sql": "runs.migrations.0003_signals",
    "runs/sql/steps.sql": "runs.migrations.0002_sql",
}


def _module(path: Path) -> str:
    name = str(path.relative_to(CHECKOUT))
    return PAIRS.get(name) or f"{path.parent.parent.name}.migrations.{path.stem}"


def _in_order(path: Path) -> tuple[int, str]:
    """The order in which a fresh database gets them: by number within an app, and runs stands on ledger."""
    return ["ledger", "runs", "approvals", "durableagents"].index(path.parent.parent.name), _module(path)


FILES = sorted(CHECKOUT.glob("*/sql/*.sql"), key=_in_order)
_DROPPED = re.compile(r"DROP FUNCTION (?:IF EXISTS )?(\w+)\(")
_DECLARED = re.compile(r"CREATE OR REPLACE FUNCTION (\w+)\(")
_TYPES = re.compile(r"CREATE TYPE (\w+) AS")


def functions(prefix: str = "") -> dict[str, str]:
    """Our own functions in the database, by name: their definitions as the server tells them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT p.proname, pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang "
            "WHERE p.pronamespace = 'public'::regnamespace AND l.lanname IN ('plpgsql', 'sql') AND "
            "NOT p.proname LIKE '%%pgtrigger%%'"
        )
        rows = cursor.fetchall()
    assert len({name for name, _ in rows}) == len(rows), (
        "no overloads: an old signature would linger beside the new one"
    )
    return {name: body for name, body in rows if name.startswith(prefix)}


def migration(path: Path) -> Any:
    return importlib.import_module(_module(path))


def newest() -> dict[str, str]:
    """Each function's last declaration, over all files."""
    return {name: text for path in FILES for name, text in sqlfiles.functions(path.read_text()).items()}


def test_every_sql_file_is_paired_with_a_migration() -> None:
    for path in FILES:
        assert path.read_text() == migration(path).SQL


def test_no_shipped_file_was_edited() -> None:
    found = {str(path.relative_to(CHECKOUT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in FILES}
    changed = {name for name in SHIPPED if found.get(name) != SHIPPED[name]}
    assert changed == set(), (
        "a shipped file reaches only new databases when it is edited: write a new one with its migration"
    )
    assert set(found) == set(SHIPPED), "a file that lands is written down with its digest"


def test_the_database_has_what_the_newest_files_say() -> None:
    before = functions()
    assert set(before) == {name for path in FILES for name in _DECLARED.findall(path.read_text())} - dropped()
    with transaction.atomic(), connection.cursor() as cursor:
        for name, text in newest().items():
            if name in before:
                cursor.execute(text)
        assert functions() == before
        transaction.set_rollback(True)


def dropped() -> set[str]:
    """Functions that a later file took away for good."""
    declared: set[str] = set()
    gone: set[str] = set()
    for path in FILES:
        text = path.read_text()
        gone |= set(_DROPPED.findall(text)) & declared
        declared |= set(sqlfiles.functions(text))
        gone -= set(sqlfiles.functions(text))
    return gone


def test_taking_it_back_leaves_nothing_and_bringing_it_again_brings_the_same() -> None:
    before = functions()
    with transaction.atomic(), connection.cursor() as cursor:
        after = [before]
        for path in reversed(FILES):
            cursor.execute(migration(path).UNDO)
            after.append(functions())
        assert after[-1] == {}
        for path in FILES:
            for name in _TYPES.findall(path.read_text()):
                cursor.execute("SELECT to_regtype(%s)", [name])
                assert cursor.fetchone()[0] is None, name
        for path in FILES:
            assert functions() == after.pop(), f"what undoes {path.name}"
            cursor.execute(path.read_text())
        assert functions() == before
        transaction.set_rollback(True)


def test_an_index_of_a_table_that_exists_is_built_while_others_write() -> None:
    """Whoever writes gives up after two seconds, and a large table takes longer. The first ones were shipped so."""
    shipped = {"ledger": "0006", "runs": "0049", "approvals": "0007", "durableagents": "0008"}
    judged = set()
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        if app not in shipped or name[:4] <= shipped[app]:
            continue
        made = {each.name.lower() for each in migration.operations if isinstance(each, CreateModel)}
        for each in migration.operations:
            if isinstance(each, AddIndex) and each.model_name_lower not in made:
                assert isinstance(each, AddIndexConcurrently) and not migration.atomic, f"{app}.{name}"
                judged.add(each.index.name)
    assert {"runs_run_moved", "ledger_event_to_undo"} <= judged


def test_the_models_and_the_migrations_agree() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_function_says_why_it_is_there(path: Path) -> None:
    """A comment stands before each, in prose: the race, the order of locks, the shape."""
    text = path.read_text()
    for found in _DECLARED.finditer(text):
        before = text[: found.start()].rstrip().splitlines()[-1]
        own_type = before.startswith(("END $$;", "$$;")) and found.group(1) == "runs_reply_of"
        assert before.startswith("--") or own_type, found.group(1)


def test_no_time_is_read_from_the_transactions_start() -> None:
    """`now()` can be older than a lock that was just won: deadlines and leases read `clock_timestamp()`."""
    for path in FILES:
        code = re.sub(r"--.*", "", path.read_text())
        assert not re.search(r"\b(now\(\)|current_timestamp|localtimestamp|transaction_timestamp)\b", code, re.I), (
            path.name
        )
