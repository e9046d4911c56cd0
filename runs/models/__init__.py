"""A run and its own (`run`), what it is asked (`messages`), who drives runs (`fleet`), what they cost (`money`)."""

from runs.models.fleet import WITHOUT_PROOF, AgentVersion, Incident, Process, Served, Sweep
from runs.models.messages import Message
from runs.models.money import BudgetDefault, Price
from runs.models.run import (
    ACTIVE,
    ENDED,
    TIME_TO_LIVE,
    WAITING,
    Checkpoint,
    IdempotencyRecord,
    Run,
    SearchTerm,
    Signal,
    State,
    Wait,
    legal_moves,
)

__all__ = [
    "ACTIVE", "AgentVersion", "BudgetDefault", "Checkpoint", "ENDED", "IdempotencyRecord", "Incident", "Message",
    "Price", "Process", "Run", "SearchTerm", "Served", "Signal", "State", "Sweep", "TIME_TO_LIVE", "WAITING",
    "WITHOUT_PROOF", "Wait", "legal_moves",
]  # fmt: skip
