"""Approvals signed by a passkey: bound to question, plan, verdict and person, used once, and verifiable later."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from django.db import IntegrityError, connection, transaction
from django.db.utils import DatabaseError

from approvals.models import Approval, Decision
from approvals.proofs import ProofNeeded
from approvals.services import decide
from durableagents.contrib.accounts import passkeys, webauthn
from durableagents.contrib.accounts.assertions import Signed, challenge_of, key_digest
from durableagents.contrib.step_up.guard import SignedForElse, check_signed
from durableagents.contrib.step_up.models import Assertion, terms_of_yes
from ledger import events as e
from ledger.actors import Actor
from ledger.models import AccountRecord
from runs.engine.gating.proof import short_of
from runs.models import Run
from tests.contrib.accounts.authenticator import Device, b64, cose, unb64
from tests.contrib.accounts.conftest import Someone, clock, grow_old
from tests.contrib.accounts.test_passkeys import device, set_up, shown_on
from tests.contrib.step_up.test_stepup_pages import fiona, kept, question, rule, send
from tests.integration.approvals.setup import asked
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, events, problems
from tests.tampering import tamper
from tests.world import Outside, Toolbox

__all__ = ["clock", "device", "fiona", "question"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def fay(fiona: Someone, device: Device) -> Someone:
    fiona.sign_in()
    set_up(fiona, device)
    grow_old(fiona.client)
    return fiona


def asks(who: Someone, question: Approval) -> tuple[dict[str, str], str, dict[str, Any]]:
    """Return the hidden fields of the confirmation page, the passkey's challenge and its options."""
    page = send(who, question)
    assert page.status_code == 403, page.content.decode()
    return kept(page), *shown_on(page)


def go_on(who: Someone, question: Approval, form: dict[str, str], token: str, answer: str) -> Any:
    proof = {"proof_challenge": token, "proof_passkey": answer, "proof_code": ""}
    return who.client.post(f"/approvals/{question.id}/decision", form | proof)


def approve(who: Someone, question: Approval, device: Device) -> Decision:
    form, token, options = asks(who, question)
    answer = go_on(who, question, form, token, device.sign(options))
    assert answer.status_code == 302, answer.content.decode()
    return Decision.objects.get(approval=question)


def actor_of(who: Someone) -> Actor:
    return Actor("user", "fiona", role="approver_finance", auth="session+passkey", person=who.user.pk)


def decided(question: Approval, by: Actor, signed: Signed | None = None) -> Approval:
    fields = {"verdict": "approve", "plan_hash": question.plan_hash, "justification": "as quoted"}
    return decide(question.id, **fields, by=by, evidence=signed)


def signed_for(who: Someone, device: Device, what: dict[str, Any]) -> Signed:
    challenge, options = passkeys.to_use(what, who.user)
    return passkeys.check(who.user, challenge.token, device.sign(options), what)


# --- the approval and what is kept of it ---


def test_the_passkey_signs_this_very_yes_and_what_it_signed_is_kept_alongside_it(
    stage: Stage, tools: Toolbox, fay: Someone, device: Device, outside: Outside
) -> None:
    rule(minutes=5, second_factor=True)
    question = asked(stage, tools)
    decision = approve(fay, question, device)
    assert decision.proof["by"] == "passkey" and 0 <= decision.proof["age"] <= 60
    assert stage.drive() == "completed" and len(outside.requests) == 1
    row = Assertion.objects.get()
    assert row.decision == decision and row.run_id == question.run_id and row.person == fay.user.pk
    assert decision.proof["assertion"] == row.signed.digest
    [event] = events(question.run, e.ApprovalDecided)
    assert event.payload["proof"] == decision.proof
    terms = row.terms
    assert {name: terms[name] for name in ("approval", "revision", "plan_hash", "verdict", "person")} == {
        "approval": str(question.id),
        "revision": 1,
        "plan_hash": question.plan_hash,
        "verdict": "approve",
        "person": fay.user.pk,
    }
    check_against_journal(question.run)
    assert problems(question.run) == []


def test_the_row_alone_gives_the_same_answer(stage: Stage, tools: Toolbox, fay: Someone, device: Device) -> None:
    """By the standard and `cryptography` alone, without our code."""
    import hashlib

    import rfc8785

    rule(minutes=5)
    approve(fay, asked(stage, tools), device)
    row = Assertion.objects.get()
    client = json.loads(bytes(row.client_data))
    assert unb64(client["challenge"]) == hashlib.sha256(rfc8785.dumps(row.terms)).digest()
    assert bytes(row.authenticator_data)[:32] == hashlib.sha256(row.rp_id.encode()).digest()
    assert bytes(row.authenticator_data)[32] & 0x05 == 0x05
    key = bytes(row.public_key)
    x, y = (int.from_bytes(key[at : at + 32], "big") for at in (10, 45))
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    message = bytes(row.authenticator_data) + hashlib.sha256(bytes(row.client_data)).digest()
    public.verify(bytes(row.signature), message, ec.ECDSA(hashes.SHA256()))
    added = AccountRecord.objects.get(action="factor_added", after__factor="webauthn")
    assert added.after["key"] == hashlib.sha256(key).hexdigest() and added.subject_person == fay.user.pk


def test_that_a_passkey_was_used_to_sign_in_is_no_word_on_a_question(
    fay: Someone, device: Device, question: Approval
) -> None:
    body = fay.client.get("/login/passkey").json()
    fay.client.post("/logout")
    options = json.loads(body["options"])
    fay.client.post("/login/passkey", {"proof_challenge": body["token"], "proof_passkey": device.sign(options)})
    assert send(fay, question).status_code == 403 and not Decision.objects.exists()
    assert approve(fay, question, device).auth == "session+passkey"


def test_who_has_both_may_show_either(stage: Stage, tools: Toolbox, fiona: Someone, device: Device) -> None:
    fay = fiona
    fay.sign_in()
    fay.set_up()
    set_up(fay, device)
    grow_old(fay.client)
    rule(minutes=5, second_factor=True)
    question = asked(stage, tools)
    form, _, _ = asks(fay, question)
    fay.clock.pass_steps()
    done = fay.client.post(f"/approvals/{question.id}/decision", form | {"proof_code": fay.code(), "proof_passkey": ""})
    assert done.status_code == 302 and Decision.objects.get().proof["by"] == "totp" and not Assertion.objects.exists()


# --- signed for something else ---


def test_what_was_signed_for_another_question_is_none_for_this(
    stage: Stage, tools: Toolbox, fay: Someone, device: Device
) -> None:
    rule(minutes=5)
    first = asked(stage, tools)
    stage2 = asks(fay, first)
    form, token, options = stage2
    answer = device.sign(options)
    by = actor_of(fay)
    for wrong in (
        {"approval": "00000000-0000-0000-0000-000000000000"},
        {"revision": 2},
        {"plan_hash": "0" * 64},
        {"verdict": "reject"},
        {"person": fay.user.pk + 1},
        {"what": "a sign-in"},
        {"v": 2},
        {"more": "x"},
    ):
        what = terms_of_yes(first.id, 1, first.plan_hash, "approve", fay.user.pk) | wrong
        signed = signed_for(fay, device, what)
        with pytest.raises(SignedForElse, match="another decision"):
            decided(first, by, signed)
    assert not Decision.objects.exists() and not Assertion.objects.exists()
    assert go_on(fay, first, form, token, answer).status_code == 302


def test_a_challenge_of_one_case_is_refused_on_the_page_of_another(
    stage: Stage, tools: Toolbox, fay: Someone, device: Device
) -> None:
    rule(minutes=5)
    first = asked(stage, tools)
    form, token, options = asks(fay, first)
    Approval.objects.filter(pk=first.pk).update(state="withdrawn")
    second = asked(stage, tools, 6000)
    other = kept(send(fay, second))
    refused = go_on(fay, second, other, token, device.sign(options))
    assert refused.status_code == 422 and "asked for something else" in refused.content.decode()
    assert not Decision.objects.exists() and form["plan_hash"] != other["plan_hash"]


def test_it_is_good_once(fay: Someone, device: Device, question: Approval) -> None:
    what = terms_of_yes(question.id, 1, question.plan_hash, "approve", fay.user.pk)
    signed, by = signed_for(fay, device, what), actor_of(fay)
    decision = decided(question, by, signed)
    assert decision.state == "approved"
    with pytest.raises(SignedForElse, match="used already"):
        check_signed(signed, question, "approve", by)
    row = Assertion.of(signed, decision=Decision.objects.get(), run_id=question.run_id)
    row.decision_id = 10**9  # for any decision: the database accepts a challenge once
    with pytest.raises(IntegrityError, match="challenge"), transaction.atomic():
        row.save(force_insert=True)


def test_one_that_was_shown_too_long_ago_is_asked_for_again(
    stage: Stage, tools: Toolbox, fay: Someone, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    rule(minutes=2)
    question = asked(stage, tools)
    now = webauthn.database_now()
    monkeypatch.setattr(webauthn, "database_now", lambda: now - timedelta(seconds=121))
    what = terms_of_yes(question.id, 1, question.plan_hash, "approve", fay.user.pk)
    signed = signed_for(fay, device, what)
    monkeypatch.undo()
    with pytest.raises(ProofNeeded):
        decided(question, actor_of(fay), signed)


def test_a_device_that_did_not_verify_its_holder_decides_nothing(
    fay: Someone, device: Device, question: Approval
) -> None:
    form, token, options = asks(fay, question)
    device.verifies = False
    refused = go_on(fay, question, form, token, device.sign(options))
    assert refused.status_code == 422 and "did not verify" in refused.content.decode()
    assert kept(refused) == form and not Decision.objects.exists()
    # and the page has a new challenge, so it can continue
    device.verifies = True
    token, options = shown_on(refused)
    assert go_on(fay, question, form, token, device.sign(options)).status_code == 302


def test_the_plan_is_read_again_where_it_was_asked_meanwhile_of_another_revision(
    fay: Someone, device: Device, question: Approval
) -> None:
    form, token, options = asks(fay, question)
    stale = go_on(fay, question, form | {"plan_hash": "0" * 64}, token, device.sign(options))
    assert stale.status_code == 409 and not Decision.objects.exists()


def test_a_key_can_t_use_one_and_is_told_so(fay: Someone, device: Device, question: Approval) -> None:
    what = terms_of_yes(question.id, 1, question.plan_hash, "approve", fay.user.pk)
    signed = signed_for(fay, device, what)
    key = Actor("key", "fiona", role="approver_finance", auth="api_key", person=fay.user.pk)
    with pytest.raises(SignedForElse):
        decided(question, key, signed)
    with pytest.raises(Exception, match="an API key can't provide"):
        decided(question, key)


def test_the_engine_uses_no_yes_by_a_passkey_without_what_it_signed() -> None:
    plan = {"tool": "pay", "proof": {"within": 300}}
    fields = {"by": "passkey", "age": 3}
    assert "was not stored" in short_of(plan, fields) and not short_of(plan, fields | {"assertion": "ab"})
    assert not short_of({"tool": "pay"}, fields)  # no proof was required


# --- found by verification ---


@pytest.fixture
def said(question: Approval, fay: Someone, device: Device) -> Run:
    approve(fay, question, device)
    assert problems(question.run) == []
    return question.run


def test_nobody_changes_or_takes_away_what_was_signed(said: Run) -> None:
    for sql in (
        "UPDATE approvals_assertion SET origin = 'x'",
        "DELETE FROM approvals_assertion",
        "TRUNCATE approvals_assertion",
    ):
        with (
            pytest.raises(DatabaseError, match=r"append-only|Cannot update or delete"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
    assert problems(said) == []


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DELETE FROM approvals_assertion", "the data signed by its passkey was not stored"),
        ("UPDATE approvals_assertion SET signature = set_byte(signature, 9, 255 - get_byte(signature, 9))", "not that"),
        ("UPDATE approvals_assertion SET client_data = client_data || ' '::bytea", "is not valid"),
        ("UPDATE approvals_assertion SET authenticator_data = set_byte(authenticator_data, 32, 1)", "did not verify"),
        ("UPDATE approvals_assertion SET public_key = ''", "is not valid"),
        ("UPDATE approvals_assertion SET public_key = set_byte(public_key, 3, 1)", "is not valid"),
        ('UPDATE approvals_assertion SET terms = terms || \'{"plan_hash": "00"}\'', "was signed for something else"),
        ("UPDATE approvals_assertion SET terms = '[]'", "can't be read"),
        ('UPDATE approvals_assertion SET terms = terms || \'{"nonce": "x"}\'', "challenge is not that of its terms"),
        ("UPDATE approvals_assertion SET rp_id = 'evil.example'", "for a site other than"),
        ("UPDATE approvals_assertion SET origin = 'https://evil.example'", "made on a page of"),
        ("UPDATE approvals_assertion SET credential = 'x'", "not the one made for that decision"),
        ("UPDATE approvals_assertion SET person = person + 1", "is by a different account from"),
    ],
)
def test_a_part_of_it_that_was_changed_is_found(said: Run, sql: str, told: str) -> None:
    tamper(sql.replace("%", "%%"))
    found = problems(said)
    assert any(told in each for each in found), found


def test_one_that_somebody_signed_with_a_key_of_their_own_is_found(said: Run) -> None:
    """Everything fits but the owner of the passkey."""
    row, mine = Assertion.objects.get(), Device("http://x", "localhost")
    mine.origin, mine.rp_id = row.origin, row.rp_id
    answer = json.loads(mine.sign({"challenge": b64(challenge_of(row.terms))}))["response"]
    tamper(
        "UPDATE approvals_assertion SET public_key = %s, client_data = %s, authenticator_data = %s, signature = %s",
        cose(mine.key),
        unb64(answer["clientDataJSON"]),
        unb64(answer["authenticatorData"]),
        unb64(answer["signature"]),
    )
    assert Assertion.objects.get().signed.problem() == ""
    found = problems(said)
    assert any("not the one made for that decision" in each for each in found), found
    assert any("no passkey of this key was ever set up" in each for each in found), found


def test_one_that_was_swapped_with_another_run_s_is_found(
    stage: Stage, tools: Toolbox, said: Run, fay: Someone, device: Device
) -> None:
    assert stage.drive() == "completed"
    other = asked(stage, tools, 7000)
    grow_old(fay.client)
    approve(fay, other, device)
    one, two = Assertion.objects.order_by("id")
    parts = ("challenge", "terms", "client_data", "authenticator_data", "signature")
    values = {name: (getattr(one, name), getattr(two, name)) for name in parts}
    tamper("UPDATE approvals_assertion SET challenge = %s WHERE id = %s", b"x" * 32, one.pk)
    for row, at in ((two, 0), (one, 1)):
        for name in parts:
            value = values[name][at]
            given = json.dumps(value) if name == "terms" else bytes(value)
            tamper(f"UPDATE approvals_assertion SET {name} = %s WHERE id = %s", given, row.pk)
    for run in (said, other.run):
        assert any("was signed for something else" in each for each in problems(run)), problems(run)


def test_passkey_that_was_added_outside_the_application_is_named(said: Run) -> None:
    """The record of accounts names a forged row even if it is sealed."""
    tamper("UPDATE ledger_accountrecord SET by = 'database:app' WHERE action = 'factor_added'")
    assert any("outside the application, in the name of database:app" in each for each in problems(said))


def test_a_passkey_that_is_taken_away_later_leaves_its_decisions_whole(said: Run, fay: Someone) -> None:
    (one,) = passkeys.of_account(fay.user)
    passkeys.take_away(fay.user, one.pk, by=actor_of(fay))
    assert problems(said) == []
    assert (
        key_digest(bytes(Assertion.objects.get().public_key))
        == AccountRecord.objects.get(action="factor_removed", before__factor="webauthn").before["key"]
    )


def test_the_page_that_asks_says_what_is_signed_and_keeps_all_they_wrote(
    fay: Someone, device: Device, question: Approval
) -> None:
    page = send(fay, question).content.decode()
    assert "Use your passkey" in page and re.findall(r'data-origin="(.*?)"', page) == [webauthn.site().origin]
    assert question.plan_hash not in json.loads(unescape(re.findall(r'data-options="(.*?)"', page)[0]))["challenge"]
