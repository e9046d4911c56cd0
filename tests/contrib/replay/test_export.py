from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel

from durableagents import Context, End
from durableagents.contrib.replay.checkpoints import (
    CheckpointDiffers,
    checkpoint_files,
    replay_checkpoint,
    replay_checkpoints,
)
from durableagents.contrib.replay.exporting import INDEX, ExportFailed, ExportOptions, export
from durableagents.contrib.replay.files import file_text
from durableagents.contrib.replay.redaction import Redaction
from ledger import events as e
from ledger.clock import database_now
from runs.engine.agents import Agent, registry
from runs.engine.canonical import callback_token
from runs.engine.recordings.recording import Recording
from runs.journal.digests import call_secret
from runs.models import Run
from tests.integration.runs.stage import Stage, events
from tests.integration.runs.stories import everything, through
from tests.tampering import tamper
from tests.world import Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db(transaction=True)


def wish(**said: Any) -> ExportOptions:
    return ExportOptions(**({"limit": 50, "since": database_now() - timedelta(days=1)} | said))


def told(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.iterdir()))


def test_a_run_with_everything_in_it_is_exported_and_replays(stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    agent = everything(tools)
    run = through(stage, tools, agent)
    done = export(tmp_path / "kept", wish(payloads="full"))
    assert done.left_out == [] and sorted(each["node"] for each in done.files) == ["first", "second"]
    sent = len(tools.outside.requests)
    answered = replay_checkpoints(tmp_path / "kept", [agent])
    assert min(each.answered for each in answered) > 3 and len(tools.outside.requests) == sent
    keys = {str(x.payload["key"]) for x in events(run) if isinstance(x, e.ToolInvoked) and x.payload["key"]}
    tokens = {
        callback_token(str(run.pk), str(x.slot), x.attempt, call_secret())
        for x in events(run)
        if isinstance(x, e.ToolInvoked) and "callback_base" in x.payload
    }
    assert keys and tokens and not any(secret in told(tmp_path / "kept") for secret in keys | tokens)


def test_each_agent_version_and_node_has_its_turn(stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    async def first(state: Notes, ctx: Context) -> str:
        await ctx.call(tools.order, Item(name="a"))
        return "second"

    async def second(state: Notes, ctx: Context) -> Any:
        await ctx.signal("go")
        return End()

    for name, version, count in (("many", "1.0.0", 6), ("many", "1.1.0", 1), ("few", "1.0.0", 1)):
        agent = agent_of(first, second, name=name, version=version, tools=tools.all())
        for _ in range(count):
            stage.start(agent)
            assert stage.drive() == "parked"
    strata = export(tmp_path / "six", wish(limit=6)).strata()
    assert set(strata.values()) == {1} and len(strata) == 6
    eight = export(tmp_path / "eight", wish(limit=8)).strata()
    assert eight["many@1.0.0 first"] + eight["many@1.0.0 second"] == 4
    only = export(tmp_path / "only", wish(agent="few")).strata()
    assert set(only) == {"few@1.0.0 first", "few@1.0.0 second"}
    with pytest.raises(ExportFailed, match="there is no checkpoint to export"):
        export(tmp_path / "none", wish(agent="nobody"))
    assert not (tmp_path / "none").exists()


def test_an_old_run_counts_while_it_is_under_way(stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    async def only(state: Notes, ctx: Context) -> Any:
        await ctx.call(tools.order, Item(name="a"))
        if state.asked.text == "wait":
            await ctx.signal("go")
        return End()

    agent = agent_of(only, name="old", tools=tools.all())
    ended, waits = stage.start(agent), stage.start(agent, text="wait")
    stage.settle(ended), stage.settle(waits)
    tamper("UPDATE runs_run SET created_at = created_at - interval '30 days'")
    export(tmp_path / "kept", wish())
    (file,) = checkpoint_files(tmp_path / "kept")
    assert str(waits.id) in file.read_text()


def test_it_reads_by_index_and_writes_nothing(stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    through(stage, tools, everything(tools))
    before = Run.objects.values_list("state", "updated_at").get()
    with CaptureQueriesContext(connection) as made:
        export(tmp_path / "kept", wish())
    assert all(query["sql"].lstrip().upper().startswith("SELECT") for query in made.captured_queries)
    # One for each known version, and a few for each file.
    assert len(made.captured_queries) <= 3 + len(registry.agents()) + 5 * 2
    assert Run.objects.values_list("state", "updated_at").get() == before
    from durableagents.contrib.replay.exporting import _NEWEST

    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"EXPLAIN {_NEWEST}", [["running"], "a", "1.0.0", ["failed"], database_now(), 40, 12])
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("SET enable_seqscan = on")
    assert "Seq Scan" not in plan, plan


# --- what is private --------------------------------------------------------------------------------------------------


class Customer(BaseModel):
    name: str
    iban: str
    password: str = "hunter2-hunter2"
    account: int = 87654321


class Private(BaseModel):
    customer: Customer
    seen: list[Any] = []


SECRETS = ("Ada Lovelace", "DE89370400440532013000", "hunter2-hunter2", "87654321", "olga-the-operator")


def private_agent(tools: Toolbox, name: str = "private") -> Agent:
    async def only(state: Private, ctx: Context) -> Any:
        state.seen.append((await ctx.call(tools.order, Item(name=f"transfer to {state.customer.iban}"))).ref)
        await ctx.call(tools.order, Item(name=f"{state.customer.name} {state.customer.password}"))
        await ctx.signal("go")
        return End()

    return agent_of(
        only,
        name=name,
        tools=tools.all(),
        input=Customer,
        state=Private,
        initial=lambda customer: Private(customer=customer),
    )


def recording_of(agent: Agent, given: Any = None) -> Recording:
    from durableagents.testing import Harness
    from runs.engine.recordings.recording import recordings_of

    story = Harness(
        agent, given or {"name": "Ada Lovelace", "iban": "DE89370400440532013000"}, by="user:olga-the-operator"
    )
    (member,) = story._family.members
    cuts = [(seq, s.node, s.visit, s.generation, s.fingerprint, s.state) for seq, s in member.run.snapshots]
    (made,) = recordings_of(member.run.id, member.run.events, cuts)
    return made


def test_what_is_private_is_nowhere_in_a_redacted_file_and_it_still_replays(tools: Toolbox, tmp_path: Path) -> None:
    agent = private_agent(tools)
    made = recording_of(agent)
    assert all(secret in file_text(made) for secret in SECRETS)
    redacted = Redaction(("iban", "customer.name", "name", "account"), b"salt").redact(made)
    text = file_text(redacted)
    assert [secret for secret in SECRETS if secret in text] == []
    assert redacted.state["customer"]["iban"] != made.state["customer"]["iban"]
    assert len(redacted.state["customer"]["iban"]) == 22 and redacted.payloads == "redacted"
    (tmp_path / "one.json").write_text(text)
    assert replay_checkpoint(tmp_path / "one.json", [agent]).answered == 2
    again = Redaction(("iban", "customer.name", "name", "account"), b"other salt").redact(made)
    assert again.state["customer"]["iban"] != redacted.state["customer"]["iban"], "no placeholder can be looked up"


def test_what_looks_secret_goes_unasked(tools: Toolbox) -> None:
    text = file_text(Redaction((), b"salt").redact(recording_of(private_agent(tools))))
    assert "hunter2" not in text and "olga-the-operator" not in text and "DE89370400440532013000" in text


def test_a_path_that_is_none_is_refused() -> None:
    for path in ("", "a..b", ".a"):
        with pytest.raises(ValueError, match="is not a path of fields"):
            Redaction((path,))


# --- the command ------------------------------------------------------------------------------------------------------


def command(*args: str, capsys: Any) -> tuple[int, str, str]:
    code = 0
    try:
        call_command("checkpoints", *args)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, *capsys.readouterr()


def test_the_command_writes_a_folder_whole_and_not_over_anything(
    stage: Stage, tools: Toolbox, tmp_path: Path, capsys: Any
) -> None:
    agent = everything(tools)
    through(stage, tools, agent)
    target = tmp_path / "kept"
    code, out, _ = command("export", "--out", str(target), "--limit", "50", "--since", "24h", capsys=capsys)
    assert code == 0 and "2 checkpoint(s)" in out and (target / INDEX).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert {each.answered > 0 for each in replay_checkpoints(target, [agent])} == {True}
    code, _, err = command("export", "--out", str(target), capsys=capsys)
    assert code == 2 and "is not empty: --refresh" in err
    assert command("export", "--out", str(target), "--refresh", capsys=capsys)[0] == 0
    (target / "mine.txt").write_text("precious")
    code, _, err = command("export", "--out", str(target), "--refresh", capsys=capsys)
    assert code == 2 and "contains other files: mine.txt" in err and (target / "mine.txt").exists()
    code, _, err = command("export", "--out", str(tmp_path / "x"), "--agent", "nobody", capsys=capsys)
    assert code == 1 and "no checkpoint" in err and not (tmp_path / "x").exists()
    code, _, err = command("export", "--out", str(tmp_path / "x"), "--redact", "a..b", capsys=capsys)
    assert code == 2 and "is not a path" in err
    (tmp_path / "file").write_text("")
    code, _, err = command("export", "--out", str(tmp_path / "file"), capsys=capsys)
    assert code == 2 and "is not a folder" in err


def test_an_encrypted_export_opens_under_its_key_only(
    stage: Stage, tools: Toolbox, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = everything(tools)
    through(stage, tools, agent)
    assert command("export", "--out", str(tmp_path / "kept"), "--payloads", "encrypted", capsys=capsys)[0] == 0
    files = checkpoint_files(tmp_path / "kept")
    assert all(b"returns" not in file.read_bytes() for file in files)
    monkeypatch.delenv("DURABLEAGENTS_CHECKPOINTS_KEY", raising=False)
    with pytest.raises(CheckpointDiffers, match="it is encrypted: set DURABLEAGENTS_CHECKPOINTS_KEY"):
        replay_checkpoint(files[0], [agent])
    code, key, _ = command("key", capsys=capsys)
    assert code == 0
    monkeypatch.setenv("DURABLEAGENTS_CHECKPOINTS_KEY", key.strip())
    assert replay_checkpoint(files[0], [agent]).answered > 0
    with pytest.raises(CheckpointDiffers, match="can't be decrypted"):
        replay_checkpoint(files[0], [agent], key="A" * 43 + "=")
    with pytest.raises(CheckpointDiffers, match="is not a key"):
        replay_checkpoint(files[0], [agent], key="short")
    content = files[0].read_bytes()
    files[0].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointDiffers, match="it was changed"):
        replay_checkpoint(files[0], [agent])


def test_a_version_that_is_not_installed_here_is_left_out_by_name_unless_it_goes_as_it_is(
    stage: Stage, tools: Toolbox, tmp_path: Path, capsys: Any
) -> None:
    agent = everything(tools)
    through(stage, tools, agent)
    registry.remove(agent.graph_id)
    code, _, err = command("export", "--out", str(tmp_path / "kept"), capsys=capsys)
    assert code == 1 and f"{agent.graph_id} is not installed here" in err and not (tmp_path / "kept").exists()
    code, _, _ = command("export", "--out", str(tmp_path / "kept"), "--payloads", "encrypted", capsys=capsys)
    assert code == 0 and len(checkpoint_files(tmp_path / "kept")) == 2


def test_what_can_not_be_believed_is_left_out_by_name(stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    agent = everything(tools)
    run = through(stage, tools, agent)
    tamper("UPDATE ledger_event SET sealed = NULL WHERE run_id = %s AND kind = 'ToolReturned'", run.id)
    done = export(tmp_path / "kept", wish())
    assert [each["node"] for each in done.files] == ["second"], "of its calls none was answered but by people"
    (left,) = done.left_out
    assert left.startswith(f"{agent.graph_id} first, run {run.id}") and "was changed" in left
