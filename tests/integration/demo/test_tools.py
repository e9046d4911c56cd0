"""The demo's tools against a real sandbox process, judged by its record of effects."""

from __future__ import annotations

import asyncio
import email
import email.policy
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durableagents import (
    Happened,
    KeyRejected,
    NotSent,
    Pending,
    ReplayClass,
    ToolCall,
    TransportError,
)
from durableagents.demo import mail_before_gate, tools
from durableagents.demo.vault import Vault
from runs.engine.tools import FOR_DISPATCH, Tool
from tests.cases import each_case
from tests.system.sandbox.harness import Receiver, Sandbox
from tests.waiting import eventually

from .conftest import RUN_ID, MakeCall

NORDLICHT = {"legal_name": "Nordlicht Antriebe GmbH", "country": "DE", "tax_id": "DE811907980"}
RECORD = tools.VendorRecord(**NORDLICHT, contact_email="vendors@nordlicht.example", category="Warehouse automation")


async def a_vendor(make_call: MakeCall) -> str:
    made = await tools.create_vendor.opened(FOR_DISPATCH)(RECORD, make_call("create_vendor"))
    return str(made.vendor_id)


def an_order(vendor_id: str, amount: object = "84000.00", **changed: object) -> tools.PurchaseOrder:
    given = {
        "vendor_id": vendor_id,
        "vendor_name": "Nordlicht Antriebe GmbH",
        "description": "Dock sensors, lot 7",
        "amount_usd": amount,
        "cost_centre": "LOG-220",
        "payment_terms": "net 30",
    }
    return tools.PurchaseOrder.model_validate(given | changed)


def test_every_tool_says_what_a_repeat_does() -> None:
    keyed = ReplayClass.IDEMPOTENT_WITH_KEY
    assert {tool.name: tool.replay_class for tool in vars(tools).values() if isinstance(tool, Tool)} == {
        "lookup_company": ReplayClass.PURE,
        "screen_sanctions": ReplayClass.PURE,
        "request_w9": keyed,
        "create_vendor": keyed,
        "file_purchase_order": keyed,
        "provision_credentials": keyed,
        "send_welcome": ReplayClass.UNSAFE_ON_REPLAY,
    }


async def test_the_registry_knows_every_company(sandbox: Sandbox, make_call: MakeCall) -> None:
    call = make_call("lookup_company", key=None)
    entry = await tools.lookup_company.opened(FOR_DISPATCH)(tools.CompanyQuery(**NORDLICHT), call)
    assert (entry.status, entry.legal_name) == ("active", "Nordlicht Antriebe GmbH")
    dissolved = await tools.lookup_company.opened(FOR_DISPATCH)(
        tools.CompanyQuery(**NORDLICHT | {"legal_name": "Phoenix Dissolved Trading Ltd"}), call
    )
    assert dissolved.status == "dissolved" and dissolved.dissolved_on
    rows = [row for row in sandbox.effects("lookup") if row["run_id"] == RUN_ID]
    assert len(rows) == 2 and not any(row["executed"] for row in rows)


async def test_screening_tells_a_hit_from_a_clear_name(sandbox: Sandbox, make_call: MakeCall) -> None:
    call = make_call("screen_sanctions", key=None)
    clear = await tools.screen_sanctions.opened(FOR_DISPATCH)(
        tools.SanctionsQuery(legal_name="Nordlicht Antriebe GmbH", country="DE"), call
    )
    assert not clear.is_hit and clear.matches == []
    hit = await tools.screen_sanctions.opened(FOR_DISPATCH)(
        tools.SanctionsQuery(legal_name="Volga Hevy Industrys", country="RU"), call
    )
    assert hit.is_hit and hit.matches[0].score >= hit.threshold
    # Records must be readable under the names they were written with.
    assert tools.Screening.model_validate(hit.model_dump(mode="json")) == hit


async def test_a_lost_answer_is_no_answer_and_the_repeat_gets_it(sandbox: Sandbox, make_call: MakeCall) -> None:
    sandbox.fault(system="erp", drop_after_execute_rate=1)
    call = make_call("create_vendor")
    with pytest.raises(TransportError):
        await tools.create_vendor.opened(FOR_DISPATCH)(RECORD, call)
    assert (await tools.create_vendor.opened(FOR_DISPATCH)(RECORD, call)).vendor_id.startswith("VND-")
    assert len([r for r in sandbox.executed() if r["idempotency_key"] == call.key]) == 1


async def test_a_key_in_progress_is_no_refusal(sandbox: Sandbox, make_call: MakeCall) -> None:
    # Long enough for a busy machine to look and to ask again.
    sandbox.fault(system="erp", operation="create_vendor", latency_ms=4000)
    call = make_call("create_vendor", timeout=60.0)
    first = asyncio.ensure_future(tools.create_vendor.opened(FOR_DISPATCH)(RECORD, call))
    seen = lambda: any(row["idempotency_key"] == call.key for row in sandbox.effects())  # noqa: E731
    await asyncio.to_thread(eventually, seen, "the first request to arrive")
    with pytest.raises(TransportError, match="409"):
        await tools.create_vendor.opened(FOR_DISPATCH)(RECORD, call)
    assert (await first).status == "active"


async def test_a_key_that_is_rejected_is_told_from_a_refusal(sandbox: Sandbox, make_call: MakeCall) -> None:
    vendor_id, call = await a_vendor(make_call), make_call("file_purchase_order")
    await tools.file_purchase_order.opened(FOR_DISPATCH)(an_order(vendor_id), call)
    with pytest.raises(KeyRejected, match="another body"):
        await tools.file_purchase_order.opened(FOR_DISPATCH)(an_order(vendor_id, "80000.00"), call)


async def test_the_w9_request_carries_the_callback_and_leaves_a_receipt(sandbox: Sandbox, make_call: MakeCall) -> None:
    receiver = Receiver()
    sandbox.fault(system="portal", w9_delay_seconds=0)
    call = make_call("request_w9", callback_url=receiver.url)
    args = tools.W9Request(legal_name="Nordlicht Antriebe GmbH", tax_id="DE811907980", contact_email="v@n.example")
    pending = await tools.request_w9.opened(FOR_DISPATCH)(args, call)
    assert isinstance(pending, Pending) and pending.receipt["request_id"].startswith("REQ-")
    w9 = tools.request_w9.output.model_validate(receiver.next())
    receiver.close()
    assert w9.form.tax_id == "DE811907980" and w9.form.document_sha256  # type: ignore[attr-defined]
    assert await tools.request_w9.opened(FOR_DISPATCH)(args, call) == pending


async def test_the_hooks_find_what_a_key_did(sandbox: Sandbox, make_call: MakeCall) -> None:
    call = make_call("create_vendor")
    assert tools.create_vendor.reconcile is not None
    assert await tools.create_vendor.reconcile(RECORD, call) is None
    made = await tools.create_vendor.opened(FOR_DISPATCH)(RECORD, call)
    assert await tools.create_vendor.reconcile(RECORD, call) == Happened(made)
    order, ordering = an_order(made.vendor_id), make_call("file_purchase_order")
    assert tools.file_purchase_order.reconcile is not None
    assert await tools.file_purchase_order.reconcile(order, ordering) is None
    filed = await tools.file_purchase_order.opened(FOR_DISPATCH)(order, ordering)
    assert await tools.file_purchase_order.reconcile(order, ordering) == Happened(filed)


@each_case(
    ("amount", "revision", "is_needed"),
    [
        ("9999.99", 1, False),
        ("10000.00", 1, True),
        (10000, 1, True),
        ("84000.00", 1, True),
        ("0.01", 1, False),
        ("0.01", 2, True),
    ],
)
def test_finance_is_asked_from_10000_for_every_revision(amount: object, revision: int, is_needed: bool) -> None:
    gate = tools.file_purchase_order.gate
    order = an_order("VND-000001", amount, revision=revision)
    assert gate is not None and gate.queue == "finance_po"
    assert gate.is_needed(order) is is_needed
    assert tools.PurchaseOrder.model_validate(order.model_dump(mode="json")) == order


def test_the_headline_is_the_money() -> None:
    gate = tools.file_purchase_order.gate
    assert gate is not None and gate.headline is not None
    assert gate.headline(an_order("VND-000001")) == "$84,000.00"


async def test_a_secret_goes_to_the_vault_and_only_its_reference_comes_back(
    sandbox: Sandbox, make_call: MakeCall, tmp_path: Path
) -> None:
    vendor_id, call = await a_vendor(make_call), make_call("provision_credentials")
    args = tools.CredentialRequest(vendor_id=vendor_id, scope="orders:read")
    issued = await tools.provision_credentials.opened(FOR_DISPATCH)(args, call)
    assert issued.reference == f"secret://runs/{RUN_ID}/{issued.credential_id}"
    value = Vault.from_environment().get(issued.reference)
    assert value.startswith("sk_sandbox_")
    assert value not in issued.model_dump_json()
    for file in (tmp_path / "data").rglob("*"):
        assert file.is_dir() or value.encode() not in file.read_bytes()
    # A repeat after a lost answer: the same secret from upstream, the same place in the vault.
    assert await tools.provision_credentials.opened(FOR_DISPATCH)(args, call) == issued


async def test_a_broken_vault_is_retried_under_its_key(sandbox: Sandbox, make_call: MakeCall, tmp_path: Path) -> None:
    vendor_id = await a_vendor(make_call)
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "vault").write_text("in the way")
    args = tools.CredentialRequest(vendor_id=vendor_id, scope="orders:read")
    call = make_call("provision_credentials")
    with pytest.raises(TransportError, match="vault") as failed:
        await tools.provision_credentials.opened(FOR_DISPATCH)(args, call)
    assert "sk_sandbox_" not in "".join(traceback.format_exception(failed.value))
    (tmp_path / "data" / "vault").unlink()
    issued = await tools.provision_credentials.opened(FOR_DISPATCH)(args, call)
    assert Vault.from_environment().get(issued.reference).startswith("sk_sandbox_")
    assert len([r for r in sandbox.executed() if r["idempotency_key"] == call.key]) == 1


def a_mail(**changed: str) -> tools.WelcomeMail:
    given = {
        "to": "vendors@nordlicht.example",
        "legal_name": "Nordlicht Antriebe GmbH",
        "vendor_id": "VND-000001",
        "po_number": "PO-000001",
        "credential_id": "CRD-000001",
    }
    return tools.WelcomeMail.model_validate(given | changed)


@pytest.fixture
def unsafe_call(make_call: MakeCall) -> ToolCall:
    return make_call("send_welcome", key=None)


def test_the_welcome_arrives_with_its_run(sandbox: Sandbox, unsafe_call: ToolCall) -> None:
    before = len(sandbox.executed("send_welcome"))
    sent = tools.send_welcome.opened(FOR_DISPATCH)(a_mail(), unsafe_call)
    assert sent.receipt.startswith("250") and sent.message_id.endswith("@durableagents.example>")
    row = sandbox.executed("send_welcome")[before]
    assert (row["run_id"], row["idempotency_key"]) == (RUN_ID, None)
    # The same slot has the same Message-ID, another slot another one.
    assert tools.send_welcome.opened(FOR_DISPATCH)(a_mail(), unsafe_call).message_id == sent.message_id


def test_a_451_is_not_sent(sandbox: Sandbox, unsafe_call: ToolCall) -> None:
    before = len(sandbox.executed("send_welcome"))
    sandbox.fault(system="email", error_rate=1)
    with pytest.raises(NotSent, match="451"):
        tools.send_welcome.opened(FOR_DISPATCH)(a_mail(), unsafe_call)
    assert len(sandbox.executed("send_welcome")) == before


def test_a_line_cut_after_the_dot_is_unknown_though_it_was_stored(sandbox: Sandbox, unsafe_call: ToolCall) -> None:
    before = len(sandbox.executed("send_welcome"))
    sandbox.fault(system="email", drop_after_execute_rate=1)
    with pytest.raises(TransportError):
        tools.send_welcome.opened(FOR_DISPATCH)(a_mail(), unsafe_call)
    assert len(sandbox.executed("send_welcome")) == before + 1


def test_a_mail_server_that_is_down_is_not_sent(sandbox: Sandbox, unsafe_call: ToolCall) -> None:
    sandbox.kill()
    with pytest.raises(NotSent):
        tools.send_welcome.opened(FOR_DISPATCH)(a_mail(), unsafe_call)
    sandbox.start()


@given(name=st.text(min_size=1, max_size=200), to=st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_or_address_can_add_a_header_or_a_recipient(unsafe_call: ToolCall, name: str, to: str) -> None:
    try:
        mail = a_mail(legal_name=name, to=to or "v@n.example")
    except ValueError:
        try:
            mail = a_mail(legal_name=name)
        except ValueError:
            return
    raw = tools.welcome_message(mail, unsafe_call).as_bytes(policy=email.policy.SMTP)
    assert raw.isascii()
    read = email.message_from_bytes(raw, policy=email.policy.SMTP)
    assert [*read.keys()] == (
        "From To Subject Date Message-ID X-Run-Id X-Operation Content-Type Content-Transfer-Encoding MIME-Version"
    ).split()
    assert [address.addr_spec for address in read["To"].addresses] == [mail.to]


@each_case("receipt", ["seen in the inbox", {"message_id": "<7@x>"}, {"receipt": 7}, ["a"], 7, True, None])
def test_a_person_may_settle_the_mail_with_words_or_a_field_of_its_result(receipt: object) -> None:
    sent = tools.send_welcome.output_from_receipt(a_mail(), receipt)
    assert sent.receipt == receipt  # type: ignore[attr-defined]
    assert sent.message_id == ("<7@x>" if receipt == {"message_id": "<7@x>"} else None)  # type: ignore[attr-defined]


A_LETTER = mail_before_gate.Letter(to="all@n.example", subject="It is decided", body="We buy it.")


@each_case("receipt", [{"by": 7}, {}])
def test_an_object_with_no_field_of_the_mails_result_is_no_receipt(receipt: object) -> None:
    for settle, mail in ((tools.send_welcome, a_mail()), (mail_before_gate.send_announcement, A_LETTER)):
        with pytest.raises(ValueError, match="none of the result's fields"):
            settle.output_from_receipt(mail, receipt)


def test_the_tools_need_no_django() -> None:
    code = "import sys, durableagents.demo.vendor_onboard; assert 'django' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
