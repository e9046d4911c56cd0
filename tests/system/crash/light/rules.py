"""The policy of a light schedule: enforced, changed and retired while its runs are under way."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.policies import services
from durableagents.contrib.policies.models import Policy
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody
from ledger.actors import Actor
from ledger.clock import database_now
from runs.engine.agents import registry
from tests.system.crash.light.plan import Schedule
from tests.system.crash.policed import QUEUE, RULE, Turn

ROOT = Actor("os", "root", auth="shell")
WHY = "The schedule says so."


class Rules:
    """One policy about one schedule's runs, identified by a tag."""

    def __init__(self, schedule: Schedule, graph_id: str, tag: str) -> None:
        proofs = schedule.proofs or ("",) * len(schedule.policies)
        self._left = [(*turn, proof) for turn, proof in zip(schedule.policies, proofs, strict=True)]
        self._tag, self._name = tag, f"crash_{tag}"
        self._agent = registry.find(graph_id).name
        self._tool = schedule.policed
        self.turns: list[Turn] = []

    def do_due(self, seq: int) -> bool:
        """Make the changes that are due. Return True if one was made."""
        is_done = False
        while self._left and self._left[0][0] <= seq:
            self._turn(*self._left[0][1:])
            del self._left[0]
            is_done = True
        return is_done

    def put_away(self) -> None:
        if Policy.objects.filter(name=self._name, ended_at__isnull=True).exists():
            services.retire(self._name, by=ROOT, justification=WHY)

    def _turn(self, to: str, proof: str) -> None:
        """Change the policy once even if the answer is lost: an equal state is left alone."""
        begun_at, asks = database_now(), _asks(proof) if to == "require" else {}
        last = Policy.objects.filter(name=self._name, ended_at__isnull=True).first()
        if to == "retire":
            self.put_away()
        elif last is None or last.effect != to or (last.proof or None) != _kept(asks):
            fields = {
                "agent": self._agent,
                "tool": self._tool,
                "condition": f"tags has {self._tag}",
                "effect": to,
                "queue": QUEUE if to == "require" else "",
                "rule": RULE,
                "justification": WHY,
                **asks,
            }
            if last is None:
                services.create(NewPolicyBody(name=self._name, **fields), by=ROOT)
            else:
                services.change(self._name, PolicyBody(**fields), by=ROOT)
        self.turns.append(Turn(begun_at, database_now(), to == "require", self._tool, proof))


def _asks(proof: str) -> dict[str, Any]:
    """Return the proof an approval must show, as the policy's form has it."""
    words = {*proof.split()}
    asks: dict[str, Any] = {"proof_minutes": 5} if words & {"fresh", "factor"} else {}
    return asks | {
        name: True for word, name in (("factor", "second_factor"), ("typed", "type_target")) if word in words
    }


def _kept(asks: dict[str, Any]) -> dict[str, Any] | None:
    return (
        PolicyBody.model_validate({"effect": "require", "rule": RULE, "justification": WHY, **asks}).proof.as_json()
        or None
    )
