"""A run and what belongs to it (`run`), who drives runs (`fleet`), and what they cost (`money`), and what they
are found by (`attributes`),
and what nodes say of them (`telling`)."""

from runs.models.attributes import Attribute
from runs.models.fleet import WITHOUT_PROOF, AgentVersion, Incident, Process, Served, Sweep
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
from runs.models.telling import LogLine, Telling

__all__ = [
    "ACTIVE", "AgentVersion", "Attribute", "BudgetDefault", "Checkpoint", "ENDED", "IdempotencyRecord",
    "Incident", "LogLine", "Price", "Process", "Run", "SearchTerm", "Served", "Signal", "State", "Sweep",
    "TIME_TO_LIVE", "Telling", "WAITING", "WITHOUT_PROOF", "Wait", "legal_moves",
]  # fmt: skip
