"""The receiver of docs/how-to/webhooks.md, as it is printed there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from durableagents.contrib.webhooks import delivering, services
from durableagents.contrib.webhooks.models import Message
from tests.conftest import free_ports
from tests.contrib.notifications.mail_server import allow
from tests.contrib.webhooks.conftest import SHELL, WHY, Receiver, webhook
from tests.integration.runs.stage import Stage, calling
from tests.waiting import eventually
from tests.world import Toolbox

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "webhooks.md"


def test_the_receiver_of_the_docs_works(stage: Stage, tools: Toolbox, settings: Any, tmp_path: Path) -> None:
    allow(settings, "127.0.0.0/8")
    (port,) = free_ports(1)
    receiver = Receiver(url=f"http://127.0.0.1:{port}/")
    row = webhook(receiver, "run.completed")
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[0]
    env = os.environ | {"WEBHOOK_SECRET": receiver.secret, "PORT": str(port)}
    out = tmp_path / "out"
    with out.open("w") as log, subprocess.Popen([sys.executable, "-c", program], env=env, stdout=log) as process:
        try:
            run = stage.start(calling(tools, "order"))
            stage.settle(run)

            def is_sent() -> bool:
                Message.objects.filter(state="waiting").update(due_at=delivering.database_now())
                delivering.deliver()
                return Message.objects.get().state == "sent"

            eventually(is_sent, "the message", 20)
            since = Message.objects.get().at
            services.replay(row.pk, services.ReplayBody(since=since, justification=WHY), by=SHELL)
            assert delivering.deliver() == 1
        finally:
            process.kill()
    assert out.read_text() == f"run.completed {run.pk}\n"
