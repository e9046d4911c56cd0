"""The fourth part of a dump: runs of `agents_decided.py`, in the situations that only code knows in which queues,
limits and deputies are data, and tags say who sees a run. Made by `make.py` where the code at hand is of then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from approvals.queues import acts
from approvals.queues.bodies import QueueBody
from runs.models import Run
from runs.services import lifecycle
from tests.approvals.setup import away, boss, limited, say, somebody
from tests.runs.stage import Stage, fresh, now
from tests.upgrade.agents_decided import QUEUE, SHUT, decided
from tests.world import SHOP

WHY = "as it was then"
# What each is started to pay; whose half the child of the last one pays.
BILLS = {
    "within the limit": 900, "above the limit": 50_000, "said yes to by a deputy": 800, "a deputy's to decide": 700,
    "said no to": 60_000, "at a closed queue": 10, "shared with a child": 600,
}  # fmt: skip


class Deciding:
    """Leaves one run per situation. What is ready is put off, as `make.Maker` does."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs: dict[str, str] = {}

    def asked(self, name: str, **more: Any) -> Run:
        """It asks, and nobody has said anything."""
        what = "shared" if name.startswith("shared") else name
        run = lifecycle.start(
            decided.name, {"what": what, "amount": BILLS[name], **more}, by=SHOP, tags={"team": "quay"}
        )
        while self.stage.drive() != "idle":
            pass
        return self.keep(name, run)

    def keep(self, name: str, run: Run) -> Run:
        self.runs[name] = str(run.id)
        Run.objects.filter(ready_at__isnull=False).update(ready_at=now() + timedelta(days=1))
        return fresh(run)


def make_all(stage: Stage) -> dict[str, Any]:
    admin = boss()
    ann, _ = somebody("ann", "approver_finance"), somebody("cleo", "approver_finance")
    bob = somebody("bob", "operator")
    for name, title in ((QUEUE, "Money"), (SHUT, "Was once")):
        body = QueueBody(name=name, title=title, role="approver_finance", needs_amount=True, justification=WHY)
        acts.create(body, by=admin)
    limited(admin, "5000", queue=QUEUE)
    limited(admin, "1000", person="ann", queue=QUEUE)
    limited(admin, None, person="cleo", queue=QUEUE)
    away(ann, "bob", queue=QUEUE)
    make = Deciding(stage)
    for name in BILLS:
        make.asked(name, **({"queue": SHUT} if name == "at a closed queue" else {}))
    acts.close(SHUT, by=admin, justification=WHY)
    for name, who, verdict in (("said yes to by a deputy", bob, "approve"), ("said no to", ann, "reject")):
        run = Run.objects.get(pk=make.runs[name])
        say(run.approvals.get(state="open"), who, verdict)
        make.keep(name, run)
    return {"decided": make.runs}
