"""Exports: who may, what is on record, and what happens if one can't be made."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import tracemalloc
import zipfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from durableagents.contrib.evidence import archive
from durableagents.contrib.evidence.errors import CannotSign, CannotWrite
from durableagents.contrib.evidence.export import export
from durableagents.contrib.evidence.leaving_out import Choice
from durableagents.contrib.large_values import stores
from durableagents.contrib.seals.keyring import key_path
from durableagents.identity.auth import issue_key
from ledger import codec
from ledger import events as e
from ledger.append import append
from ledger.models import ActRecord
from ledger.verification.registers import verify_registers
from runs.models import Run
from tests.contrib.evidence.conftest import OPS, Saved, bundle_of, verified
from tests.contrib.evidence.rewriting import events_of, files_of
from tests.integration.approvals.setup import buying, signed_in, somebody
from tests.integration.runs.stage import Stage
from tests.tiers import many
from tests.world import SHOP, Toolbox

pytestmark = pytest.mark.django_db


def exported() -> list[ActRecord]:
    return list(ActRecord.objects.filter(action="evidence").order_by("id"))


def test_each_export_is_on_record_for_each_run(paid: UUID, stage: Stage, tools: Toolbox) -> None:
    other = stage.start(buying(tools)).pk
    file = io.BytesIO()
    done = export([paid, other], file, by=OPS, choice=Choice(["amount"]), reason="the audit of 2026")
    one, two = exported()
    assert {one.subject, two.subject} == {f"run {paid}", f"run {other}"} and one.by == "os:ops"
    assert one.justification == "the audit of 2026" and one.after["left_out"] == ["amount"]
    assert one.after["sha256"] == done.sha256 and one.after["bytes"] == len(file.getvalue())
    assert one.after["events"] == 10
    assert [each for each in verify_registers() if each.problems] == []


def test_the_page_gives_the_bundle_to_who_may_read_the_run(paid: UUID, saved: Saved) -> None:
    address, anna = f"/runs/{paid}/evidence", somebody("anna", "auditor")
    client = signed_in(anna)
    assert f'href="{address}"' in client.get(f"/runs/{paid}").content.decode()
    page = client.get(address)
    assert page.status_code == 200 and exported() == []
    exports = f"{address}/exports"
    answer = client.post(exports, {"redact": "amount", "reason": "for the bank"})
    assert answer.status_code == 200 and answer["Content-Disposition"] == f'attachment; filename="evidence-{paid}.zip"'
    assert verified(saved(b"".join(answer.streaming_content))).code == 0  # type: ignore[attr-defined]
    (act,) = exported()
    assert (act.by, act.role, act.justification, act.after["left_out"]) == (
        "user:anna",
        "auditor",
        "for the bank",
        ["amount"],
    )
    wrong = client.post(exports, {"redact": "a..b"})
    assert wrong.status_code == 422 and "a..b" in wrong.content.decode() and len(exported()) == 1
    refused: list[tuple[Client, int]] = [
        (signed_in(somebody("ivan", "integrator")), 403),
        (signed_in(somebody("nora", "approver_finance")), 403),
        (Client(), 302),
    ]
    for who, status in refused:
        assert who.post(exports).status_code == status
    assert len(exported()) == 1


def test_a_bundle_that_can_not_be_made_leaves_nothing(
    paid: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CannotWrite):
        export([paid], Full(), by=OPS, choice=Choice())
    with monkeypatch.context() as patch:
        patch.setattr(archive, "MAX_BYTES", 10_000)
        with pytest.raises(CannotWrite, match="2 GB"):
            bundle_of(paid)
    bundle_of(paid)
    before = len(exported())
    kept = key_path().read_text()
    key_path().unlink()
    output = tmp_path / "out.zip"
    assert command(paid, "--output", output).startswith("2 evidence: The seals' private key")
    assert list(tmp_path.glob("*.zip")) == [] and list(tmp_path.glob(".*part")) == []
    with pytest.raises(CannotSign):
        bundle_of(paid)
    key_path().write_text(kept)
    assert len(exported()) == before


def command(*arguments: object) -> str:
    """Run `manage.py evidence export`; return the exit code and what it printed."""
    out, errors = StringIO(), StringIO()
    try:
        call_command("evidence", "export", *map(str, arguments), stdout=out, stderr=errors)
    except SystemExit as end:
        return f"{end.code} {errors.getvalue()}"
    return f"0 {out.getvalue()}"


def test_the_command_exports_runs_or_a_filter(paid: UUID, stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    stage.start(buying(tools, 9000))
    found = command(paid, "--output", tmp_path / "one.zip")
    assert found.startswith("0 ")
    assert (tmp_path / "one.zip").stat().st_mode & 0o777 == 0o600
    assert verified(tmp_path / "one.zip").code == 0
    odd = command(paid, "--output", tmp_path / "$it's.zip")
    for name, printed in (("one.zip", found), ("$it's.zip", odd)):
        lines = [line.strip() for line in printed.splitlines() if line.startswith("  python3 ")]
        for line in lines:
            done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (name, line, done.stderr)
        assert len(lines) == 2 and "RESULT: everything above is proven" in done.stdout
    (tmp_path / "$it's.zip").unlink()
    found = command("--filter", "state=completed", "--output", tmp_path / "two.zip", "--redact", "amount")
    assert found.startswith("0 ") and "1 run(s)" in found
    refused = {
        ("--output", "x.zip"): "name runs, or give --filter",
        (paid, "--filter", "state=failed", "--output", "x.zip"): "not both",
        ("--filter", "state=failed", "--output", "x.zip"): "no run matches",
        ("--filter", "state=nonsense", "--output", "x.zip"): "state can't be",
        ("--filter", "states=failed", "--output", "x.zip"): "unknown",
        ("--filter", "where=amount >", "--output", "x.zip"): "",
        ("no-id", "--output", "x.zip"): "'no-id' is not a run id",
        (UUID(int=1), "--output", "x.zip"): "No run",
        (paid, "--output", "nowhere/x.zip"): "cannot write",
        (paid, "--output", "one.zip"): "already exists",
    }
    before = len(exported())
    for arguments, why in refused.items():
        *most, name = arguments
        answer = command(*most, tmp_path / str(name))
        assert answer.startswith("2 evidence: ") and why in answer, (arguments, answer)
    assert len(exported()) == before and sorted(each.name for each in tmp_path.glob("*.zip")) == ["one.zip", "two.zip"]


def test_large_values_from_their_store_are_in_the_bundle(
    stage: Stage, tools: Toolbox, tmp_path: Path, settings: Any, saved: Saved
) -> None:
    root = tmp_path / "values"
    root.mkdir()
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"large_values": root})
    store = stores.configured()
    assert isinstance(store, stores.Folder)
    store.prepare()
    codec.use_store(store)
    try:
        run = stage.start(buying(tools))
        text = os.urandom(20_000).hex()
        append(run.pk, e.SignalReceived(name="big", n=1, by=SHOP.ref, payload={"text": text}), by=SHOP)
        bundle = bundle_of(run.pk)
    finally:
        codec.use_store(None)
    (big,) = [each for each in events_of(files_of(bundle), run.pk) if "kept" in each]
    assert big["payload"]["text"] == text
    for plain in ((), ("--plain",)):
        assert "contents match the sealed bytes" in verified(saved(bundle), *plain).text
    changed = bundle.replace(big["kept"][1000:1050].encode(), b"A" * 50)
    assert f"event {big['seq']}: its content can't be compared" in verified(saved(changed)).text


_WRONG = ("amuont", "amount,amuont", "amount.name", "", " , ")


def test_a_field_that_no_run_has_is_refused(paid: UUID, stage: Stage, tools: Toolbox, tmp_path: Path) -> None:
    """A misspelled field must not export what its author wanted to leave out."""
    other = stage.start(buying(tools)).pk
    refused = [(text, text.rpartition(",")[2].strip()) for text in _WRONG]
    address = f"/api/v1/runs/{paid}/evidence"
    found = command(paid, other, "--output", tmp_path / "one.zip", "--redact", "amount,Arguments.Name")
    assert found.startswith("0 ") and "value(s) left out: amount, Arguments.Name" in found, found
    assert "\n0 value" not in found and len(exported()) == 2
    with zipfile.ZipFile(tmp_path / "one.zip") as bundle:
        texts = b"".join(bundle.read(name) for name in bundle.namelist() if name.startswith("runs/"))
    assert not re.findall(rb"[^0-9a-f]5000[^0-9a-f]", texts)
    anna = somebody("anna", "auditor")
    client, key = signed_in(anna), issue_key(User.objects.get(username="anna"), "test")
    for text, name in refused:
        found = command(paid, other, "--output", tmp_path / "two.zip", "--redact", text)
        assert found.startswith("2 ") and name in found and "s no field" in found, found
        answer = Client().get(address, {"redact": text}, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 422 and name in str(answer.json()["errors"]), answer.content
        if text:
            answer = client.post(f"/runs/{paid}/evidence/exports", {"redact": text})
            assert answer.status_code == 422 and name in answer.content.decode()
    assert len(exported()) == 2 and not (tmp_path / "two.zip").exists()


@pytest.mark.timeout(900)
def test_a_long_run_is_exported_with_bounded_memory(
    stage: Stage, tools: Toolbox, tmp_path: Path, saved: Callable[[bytes], Path]
) -> None:
    """10,000 events of 5 KB each, in all fifty times what the export may keep."""
    events = many(10_000, 500)
    run: Run = stage.start(buying(tools))
    for first in range(0, events, 100):
        batch = [
            e.SignalReceived(name="s", n=n, by=SHOP.ref, payload={"text": os.urandom(2500).hex()})
            for n in range(first + 1, first + 101)
        ]
        append(run.pk, *batch, by=SHOP)
    path = tmp_path / "long.zip"
    with path.open("w+b") as file:
        tracemalloc.start()
        export([run.pk], file, by=OPS, choice=Choice())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 12_000_000 and path.stat().st_size > events * 5000, peak
    answer = verified(path)
    assert (
        answer.code == 1
        and f"{json.loads(files_of(path.read_bytes())['manifest.json'])['runs'][0]['events']} events" in answer.text
    )
