"""The mail server: stored before the 250, no key honoured."""

from __future__ import annotations

import smtplib
import socket
from email.message import EmailMessage

from .harness import PATIENCE_SECONDS, Sandbox


def welcome(**headers: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "onboarding@durable.example"
    message["To"] = "billing@nordlicht.example"
    message["Subject"] = "Welcome, Nordlicht – Grüße"
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content("Your vendor record is ready.\n.\nA line that was only a dot.\n")
    return message


def send(sandbox: Sandbox, message: EmailMessage) -> None:
    with smtplib.SMTP("127.0.0.1", sandbox.smtp_port, timeout=PATIENCE_SECONDS) as smtp:
        smtp.send_message(message)


def inbox_count(sandbox: Sandbox) -> int:
    return sandbox.client.get("/mail").text.count('<a href="/mail/')


def test_a_message_sent_twice_is_two_effects(sandbox: Sandbox) -> None:
    send(sandbox, welcome(X_Run_Id="run-1"))
    send(sandbox, welcome(X_Run_Id="run-1"))

    rows = sandbox.executed()
    assert [(row["system"], row["operation"]) for row in rows] == [("email", "send_welcome")] * 2
    assert {row["idempotency_key"] for row in rows} == {None}
    assert {row["run_id"] for row in rows} == {"run-1"}
    assert rows[0]["body_sha256"] == rows[1]["body_sha256"]
    assert inbox_count(sandbox) == 2


def test_a_250_survives_kill_9(sandbox: Sandbox) -> None:
    send(sandbox, welcome())
    sandbox.kill()
    sandbox.start()

    assert len(sandbox.executed()) == 1
    assert inbox_count(sandbox) == 1


def test_a_drop_stores_the_message_and_cuts_before_the_250(sandbox: Sandbox) -> None:
    sandbox.fault(system="email", drop_after_execute_rate=1)
    with socket.create_connection(("127.0.0.1", sandbox.smtp_port), PATIENCE_SECONDS) as raw:
        talk = raw.makefile("rwb", buffering=0)
        assert talk.readline().startswith(b"220")
        for line in (b"HELO me", b"MAIL FROM:<a@b.example>", b"RCPT TO:<c@d.example>", b"DATA"):
            talk.write(line + b"\r\n")
            assert talk.readline()[:1] in b"23"
        talk.write(b"Subject: hi\r\nX-Run-Id: run-1\r\n\r\nhello\r\n.\r\n")

        assert talk.read() == b""

    assert [row["run_id"] for row in sandbox.executed()] == ["run-1"]
    assert inbox_count(sandbox) == 1


def test_hostile_mail_is_taken_and_shown_inert(sandbox: Sandbox) -> None:
    raw = (
        b"Subject: =?utf-8?b?4oCuPHNjcmlwdD4=?=\r\nX-Run-Id: has spaces\r\nX-Run-Id: \xff\r\n"
        b"Content-Type: text/plain; charset=nonsense\r\n\r\n\x00\xff<img src=x onerror=alert(1)>\r\n"
    )
    with smtplib.SMTP("127.0.0.1", sandbox.smtp_port, timeout=PATIENCE_SECONDS) as smtp:
        smtp.ehlo()
        smtp.mail("a@b.example")
        # By hand: Python's releases quote such an address differently.
        assert smtp.docmd("RCPT", "TO:<script>")[0] == 250
        assert smtp.data(raw)[0] == 250

    assert [row["run_id"] for row in sandbox.executed()] == [None]
    for path in ("/mail", "/mail/1"):
        page = sandbox.client.get(path)
        assert page.status_code == 200
        assert "<script" not in page.text
        assert "<img" not in page.text
        assert "U+202E" in page.text


def test_the_mailbox_finds_a_message_by_its_run_and_its_id(sandbox: Sandbox) -> None:
    with smtplib.SMTP("127.0.0.1", sandbox.smtp_port) as smtp:
        for run in ("run-1", "run-2"):
            mail = f"Subject: Hello\r\nMessage-ID: <a@b.example>\r\nX-Run-Id: {run}\r\n\r\nx"
            smtp.sendmail("a@x.example", ["b@x.example"], mail)

    def found(run_id: str, message_id: str) -> int:
        query = {"run_id": run_id, "message_id": message_id}
        return len(sandbox.client.get("/api/mail/messages", params=query).raise_for_status().json()["results"])

    assert found("run-1", "<a@b.example>") == 1
    assert found("run-1", "<other@b.example>") == found("run-3", "<a@b.example>") == 0
    assert sandbox.client.get("/api/mail/messages", params={"run_id": "run-1"}).status_code == 422
