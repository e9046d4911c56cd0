"""Contents and proofs of bundles: full, redacted, erased, of running runs, of several people, and with a witness."""

from __future__ import annotations

import ast
import html
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from approvals.models import Approval
from approvals.services import decide
from durableagents import Context, End, Gate, ReplayClass, TransportError
from durableagents import Stage as Then
from durableagents.contrib.evidence import export as exporting
from durableagents.contrib.evidence import verify
from durableagents.contrib.evidence.leaving_out import Choice
from durableagents.contrib.seals.witnesses import deliver
from durableagents.seal_witness import SealWitness
from ledger.errors import InvalidInput, NotFound
from runs.engine.canonical import callback_token
from runs.journal.digests import call_secret
from runs.models import Run
from runs.services import lifecycle
from runs.services.callbacks import receive_callback
from tests.contrib.evidence.conftest import Saved, bundle_of, verified, verified_alone
from tests.contrib.evidence.rewriting import events_of, files_of
from tests.integration.approvals.setup import buying, say, somebody, sound
from tests.integration.runs.stage import OLGA, Stage
from tests.tampering import tamper
from tests.world import Done, Item, Notes, Toolbox, agent_of

pytestmark = pytest.mark.django_db
SENT = "sent exactly the approved arguments"


def test_a_full_bundle_proves_everything_by_hash(paid: UUID, saved: Saved) -> None:
    bundle = bundle_of(paid)
    answer = verified(saved(bundle))
    assert answer.code == 0
    assert "proven [hash]  every event is covered by a seal" in answer.lines
    assert any(SENT in line and line.startswith("proven [hash]  pay, event") for line in answer.lines)
    assert '{"name": "po", "amount": 5000}' in answer.lines
    assert any("approved by user:fiona as approver_finance" in line and "as quoted" in line for line in answer.lines)
    assert any('Approval 1: "Pay", 5000 USD, queue finance_po' in line for line in answer.lines)
    assert verified(saved(bundle), "--plain").text == answer.text


def test_the_program_imports_nothing_of_ours_and_runs_alone(paid: UUID, tmp_path: Path) -> None:
    files = files_of(bundle_of(paid))
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(files["verify.py"]))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"cryptography", "zstandard"}
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "verify.py").write_bytes(files["verify.py"])
    (tmp_path / "alone" / "bundle.zip").write_bytes(bundle_of(paid))
    answer = verified_alone(tmp_path / "alone", "bundle.zip")
    assert (answer.code, SENT in answer.text) == (0, True), answer.text
    assert verified_alone(tmp_path / "alone", "nothing.zip").code == 2


def test_the_same_run_gives_the_same_files_again(paid: UUID) -> None:
    one, two = files_of(bundle_of(paid)), files_of(bundle_of(paid))
    assert list(one) == list(two) and {n for n in one if one[n] != two[n]} <= {
        "manifest.json",
        "signature.json",
        "record.html",
    }


def test_a_redacted_bundle_proves_what_it_leaves_out(paid: UUID, saved: Saved) -> None:
    full = saved(bundle_of(paid))
    for choice, gone in ((Choice(["amount"]), "5000"), (Choice(is_without_payloads=True), '"po"')):
        bundle = bundle_of(paid, choice=choice)
        files, path = files_of(bundle), saved(bundle)
        assert f"runs/{paid}/key.json" not in files and f"runs/{paid}/left_out.json" not in files
        texts = b"".join(each for name, each in files.items() if name.startswith("runs/") or name == "record.html")
        # Not as a part of a digest, which is random.
        assert re.search(rb"(?<![0-9a-f-])" + gone.encode() + rb"(?![0-9a-f-])", texts) is None
        answer = verified(path)
        assert answer.code == 0 and any(SENT in line and "[signed]" in line for line in answer.lines), answer.text
        assert not any("[hash]" in line and SENT in line for line in answer.lines)
        readable = answer.text + html.unescape(files["record.html"].decode())
        assert readable.count("(title left out)") == (2 if choice.is_without_payloads else 0)
        assert "{'left out'" not in readable
        answer = verified(path, "--full", full)
        assert answer.code == 0 and "match the full bundle" in answer.text, answer.text
        assert verified(path, "--full", path).code == 1
    altered = saved(full.read_bytes().replace(b"as quoted", b"as agreed"))
    assert verified(path, "--full", altered).code == 2


def test_of_a_running_run_everything_up_to_one_moment_is_exported(stage: Stage, tools: Toolbox, saved: Saved) -> None:
    run = stage.start(buying(tools))
    assert stage.drive() == "parked"
    answer = verified(saved(bundle_of(run.pk)))
    assert answer.code == 1 and "NOT PROVEN      how the run ends" in answer.text and "not decided" in answer.text
    assert "ALTERED" not in answer.text


def test_an_unknown_outcome_is_not_proven(stage: Stage, tools: Toolbox, saved: Saved) -> None:
    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.mail, Item(name="po"))).ref)

    run = stage.start(agent_of(node, tools=[tools.mail]))
    stage.kill_at = [("CP2", "mail")]
    stage.drive()
    stage.drive()
    answer = verified(saved(bundle_of(run.pk)))
    assert answer.code == 1 and "NOT PROVEN      the outcome of mail" in answer.text, answer.text


def test_what_people_and_callbacks_stated_is_in_the_record(stage: Stage, tools: Toolbox, saved: Saved) -> None:
    """The calls were answered by callback, settled by a person, or sent twice. Bundles without `ref`, and rows from
    before callbacks had ids, are covered too."""
    ask = replace(tools.ask, external_id="ref")

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(tools.mail, Item(name="letter"))
        await ctx.call(tools.order, Item(name="ink"))
        return End((await ctx.call(ask, Item(name="form"))).ref)

    tools.outside.trouble("order", TransportError("cut off"))
    run = stage.start(agent_of(node, tools=[tools.mail, tools.order, ask]))
    stage.kill_at = [("CP2", "mail")]
    assert stage.settle(run) == "parked"
    stage.reconcile(run, "happened", {"ref": "LAB-00003", "amount": 1})
    assert stage.settle(run) == "parked"
    receive_callback(tools.outside.urls.popitem()[1].rpartition("/")[2], {"ref": "SHI-00008", "amount": 1})
    assert stage.settle(run) == "completed"
    sound(run)

    files = files_of(bundle := bundle_of(run.pk))
    page = html.unescape(files["record.html"].decode())
    assert page.count(f"done, as stated by {OLGA.ref}: ") == 2 and "<br>mail: done, as stated by" in page
    assert "external id <code>SHI-00008</code>" in page and "sent 2 times" in page
    assert re.search(r"Started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC by", page)
    answer = verified(saved(bundle))
    assert answer.code == 0, answer.text
    assert "1 outcome(s) are what people stated" in answer.text and "order, event" in answer.text
    assert any(line.startswith("mail, event") and "LAB-00003" in line for line in answer.lines), answer.text

    redacted = files_of(bundle_of(run.pk, choice=Choice(["ref"])))
    assert not any(b"SHI-00008" in each or b"LAB-00003" in each for each in redacted.values())

    tamper("UPDATE ledger_ledgerentry SET external_id = NULL WHERE external_id = 'SHI-00008'")
    assert files_of(bundle_of(run.pk))[f"runs/{run.pk}/ledger.jsonl"] == files[f"runs/{run.pk}/ledger.jsonl"]


def test_acts_are_in_order_of_time(stage: Stage, tools: Toolbox) -> None:
    """The start is recorded among the acts, the later cancellation among the overrides."""
    run = lifecycle.start(buying(tools).graph_id, {}, by=OLGA)
    lifecycle.cancel(run.pk, by=OLGA, justification="not needed")
    page = files_of(bundle_of(run.pk))["record.html"].decode()
    assert page.index("<td>start</td>") < page.index("<td>cancel</td>")


def test_a_run_whose_key_is_gone_is_exported_without_its_content(paid: UUID, saved: Saved) -> None:
    tamper("DELETE FROM encryption_runkey WHERE run_id = %s", paid)
    bundle = bundle_of(paid)
    answer = verified(saved(bundle))
    assert answer.code == 1 and "their key is gone" in answer.text and "proven [hash]  10 events" in answer.text
    assert "ALTERED" not in answer.text and b'"amount":5000' not in bundle
    assert all("unreadable" in each for each in events_of(files_of(bundle), paid) if each["stored_sha256"])


def test_runs_stored_in_the_clear_are_proven_too(stage: Stage, tools: Toolbox, settings: Any, saved: Saved) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"encryption_keys": ["none"]})
    run = stage.start(buying(tools))
    stage.drive()
    say(Approval.objects.get(state="open"), somebody("fiona", "approver_finance"))
    assert stage.drive() == "completed"
    files = files_of(bundle := bundle_of(run.pk))
    assert f"runs/{run.pk}/key.json" not in files
    answer = verified(saved(bundle))
    assert answer.code == 0 and any(SENT in line and "[hash]" in line for line in answer.lines), answer.text


def test_tokens_of_callbacks_are_never_in_a_bundle(stage: Stage, tools: Toolbox, saved: Saved) -> None:
    slow = tools._plain("slow", ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Done)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(slow, Item(name="po"))).ref)

    run = stage.start(agent_of(node, tools=[slow]))
    stage.drive()
    files = files_of(bundle := bundle_of(run.pk))
    (sent,) = [each for each in events_of(files, run.pk) if '"kind":"ToolInvoked"' in each["clear"]]
    token = callback_token(str(run.pk), "0.1/1", 0, call_secret())
    assert "stored" in sent and "left_out" not in sent and len(token) == 64
    assert token.encode() not in b"".join(files.values())
    answer = verified(saved(bundle))
    assert "4 of 4 contents match the sealed bytes" in answer.text


def test_stored_tokens_of_older_runs_are_left_out(
    stage: Stage, tools: Toolbox, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "PROTOCOL", 1)
    slow = tools._plain("slow", ReplayClass.IDEMPOTENT_WITH_KEY, answers_later=True, output=Done)

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(slow, Item(name="po"))).ref)

    run = stage.start(agent_of(node, tools=[slow]))
    stage.drive()
    files = files_of(bundle := bundle_of(run.pk))
    (sent,) = [each for each in events_of(files, run.pk) if '"kind":"ToolInvoked"' in each["clear"]]
    assert "stored" not in sent and list(sent["left_out"]) == ["/callback_token"]
    answer = verified(saved(bundle))
    assert answer.code == 1
    assert "1 contents are only stated by the installation, 1 of them with parts left out" in answer.text


def test_several_people_in_stages(stage: Stage, tools: Toolbox, saved: Saved) -> None:
    pay = replace(tools.pay, gate=Gate("legal", "large sums", quorum=2, then=[Then("finance_po")]))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=7))).ref)

    run = stage.start(agent_of(node, tools=[pay]))
    assert stage.drive() == "parked"
    for name in ("lena", "leo"):
        _vote(somebody(name, "approver_legal"), "approver_legal")
    stage.drive()
    _vote(somebody("fiona", "approver_finance"), "approver_finance")
    assert stage.drive() == "completed"
    answer = verified(saved(bundle_of(run.pk)))
    assert answer.code == 0 and answer.text.count("vote: approve by user:le") == 2, answer.text
    assert verified(saved(bundle_of(run.pk, choice=Choice(is_without_payloads=True)))).code == 0


def _vote(by: Any, role: str) -> None:
    approval = Approval.objects.get(state="open")
    why = "as agreed"
    decide(approval.id, verdict="approve", plan_hash=approval.plan_hash, justification=why, by=replace(by, role=role))


def test_keys_and_witnesses_from_elsewhere_are_compared(paid: UUID, saved: Saved, witness: SealWitness) -> None:
    bundle = bundle_of(paid)
    deliver(witness)
    copy = Path(witness.path)
    key = json.loads(files_of(bundle)["keys.json"])[-1]["public_key"]
    key_file = copy.with_name("key.txt")
    key_file.write_text(key)
    path = saved(bundle)
    answer = verified(path, "--key", key_file, "--witness", copy)
    assert answer.code == 0 and "proven [witness]" in answer.text and "is the key you gave" in answer.text
    assert verified(path, "--key", "0" * 64).code == 1
    assert verified(path, "--key", "no key").code == 2
    assert verified(path, "--witness", copy.with_name("none")).code == 2
    (line,) = copy.read_text().splitlines()
    copy.write_text(line.replace('"count":1', '"count":2') + "\n")
    assert verified(path, "--witness", copy).code == 2
    copy.write_text("")
    assert verified(path, "--witness", copy).code == 1


def test_what_is_not_sealed_yet_is_not_proven(paid: UUID, saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another process were sealing all the time."""
    monkeypatch.setattr(exporting, "_SEAL_TRIES", 0)
    bundle_of(paid)  # makes the first key
    answer = verified(saved(bundle_of(paid)))
    assert answer.code == 1 and "events 1 to 10 are not covered by a seal" in answer.text


def test_several_runs_in_one_bundle_and_none_that_is_missing(
    paid: UUID, stage: Stage, tools: Toolbox, saved: Saved
) -> None:
    other = stage.start(buying(tools)).pk
    bundle = bundle_of(paid, other, paid)
    assert json.loads(files_of(bundle)["manifest.json"])["runs"][1]["id"] == str(other)
    assert verified(saved(bundle)).text.count("\nRun ") == 2
    with pytest.raises(NotFound):
        bundle_of(paid, UUID(int=1))
    with pytest.raises(InvalidInput):
        bundle_of()
    with pytest.raises(InvalidInput):
        Choice(["a..b"])


def test_the_record_is_plain_short_and_inert(stage: Stage, tools: Toolbox) -> None:
    hostile = "<script>alert(1)</script>\u202e\x1b[2J"
    pay = tools.pay

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name=hostile, amount=5000))).ref)

    run = stage.start(agent_of(node, tools=[pay]))
    stage.drive()
    say(Approval.objects.get(state="open"), somebody("fiona", "approver_finance"))
    stage.drive()
    page = files_of(bundle_of(run.pk))["record.html"].decode()
    assert "<script" not in page and "\u202e" not in page and "\x1b" not in page
    assert "user:fiona" in page and "exactly the approved arguments" in page and "http" not in page.split("</style>")[1]
    assert len(page) < 9000  # a page has about 3,500 letters
    assert Run.objects.get(pk=run.pk).state == "completed" and verify.FORMAT == "durableagents evidence 1"
