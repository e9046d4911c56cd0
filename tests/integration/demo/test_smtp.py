"""What an SMTP outcome means, phase by phase: only the moment after the final dot can leave a doubt."""

from __future__ import annotations

import socket
from email.message import EmailMessage

import pytest

from durableagents import BusinessFailure, NotSent, TransportError
from durableagents.demo import smtp
from tests.cases import each_case

from .wire import Dialogue, ScriptedServer, smtp_saying

FINE = [b"220 hello\r\n", b"250 hi\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n"]
PHASES = ["greeting", "EHLO", "MAIL FROM", "RCPT TO", "DATA"]


def message(text: str = "Hello\n") -> EmailMessage:
    made = EmailMessage()
    made["From"] = "Onboarding <onboarding@us.example>"
    made["To"] = "vendor@them.example"
    made["Subject"] = "Welcome"
    made.set_content(text)
    return made


def deliver(dialogue: Dialogue, text: str = "Hello\n", timeout: float = 5.0) -> tuple[str, list[bytes]]:
    with ScriptedServer(dialogue) as server:
        receipt = smtp.deliver(
            message(text),
            to="vendor@them.example",
            host="127.0.0.1",
            port=server.port,
            timeout=timeout,
        )
    return receipt, list(server.heard.queue)


def test_a_mail_that_is_taken_gives_the_servers_receipt() -> None:
    receipt, heard = deliver(smtp_saying(FINE, after_dot=b"250 queued as 7\r\n"))
    assert receipt == "250 queued as 7"
    assert heard[1:3] == [
        b"mail FROM:<onboarding@us.example>\r\n",
        b"rcpt TO:<vendor@them.example>\r\n",
    ]
    assert heard[-1] == b"QUIT\r\n"


def test_dots_at_line_starts_are_doubled_and_lines_end_in_crlf() -> None:
    _, heard = deliver(smtp_saying(FINE), ".\n..\n.hidden\nplain.\n")
    body = heard[4].split(b"\r\n\r\n", 1)[1]
    assert body == b"..\r\n...\r\n..hidden\r\nplain.\r\n"


@each_case("phase", range(5))
def test_a_connection_lost_before_the_dot_is_not_sent(phase: int) -> None:
    with pytest.raises(NotSent):
        deliver(smtp_saying([*FINE[:phase], None]))


@each_case("phase", range(5))
def test_a_5xx_before_the_dot_is_a_refusal(phase: int) -> None:
    with pytest.raises(BusinessFailure) as refused:
        deliver(smtp_saying([*FINE[:phase], b"550 no such user\r\n"]))
    assert refused.value.code == "smtp_550"
    assert refused.value.details == {"phase": PHASES[phase]}
    assert "no such user" in refused.value.message


@each_case("is_reset", [False, True])
def test_a_connection_lost_after_the_dot_is_unknown(is_reset: bool) -> None:
    with pytest.raises(TransportError):
        deliver(smtp_saying(FINE, after_dot=None, is_reset=is_reset))


def silent(until: int) -> Dialogue:
    """Answers the first phases and then keeps the connection open without a word."""

    def dialogue(connection: socket.socket, server: ScriptedServer) -> None:
        reader = connection.makefile("rb")
        for n, reply in enumerate(FINE[:until]):
            if n:
                reader.readline()
            connection.sendall(reply)
        while reader.readline():
            pass

    return dialogue


def test_silence_before_the_dot_is_not_sent() -> None:
    with pytest.raises(NotSent):
        deliver(silent(3), timeout=0.3)


def test_silence_after_the_dot_is_unknown() -> None:
    with pytest.raises(TransportError, match="timed out"):
        deliver(silent(5), timeout=4)  # all phases before the dot included; the server hangs up after five
