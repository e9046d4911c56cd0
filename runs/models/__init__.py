"""A run and its own (`run`), its checkpoints (`kept`), what it is asked (`messages`), found by (`attributes`) and seen
by (`run_tags`), what nodes say of it (`telling`) and models right now (`overheard`), what tools read lately (`reads`),
who drives runs (`fleet`), what they cost (`money`) and share (`pools`), what workers share (`limits`), what is
halted (`halts`), what starts by the clock (`schedules`), which version a start gets (`releases`), which policies are in
force (`policies`), what probes found (`probes`), and acts on many runs (`bulk`)."""

from runs.models.attributes import Attribute
from runs.models.control.bulk import Batch, BatchItem
from runs.models.control.halts import NEVER, Halt, HaltNow, HaltSeen, Held, Stood
from runs.models.control.policies import PolicyRevision
from runs.models.fleet import KEPT, WITHOUT_PROOF, AgentCode, AgentVersion, Incident, Process, Served, Sweep
from runs.models.kept import Checkpoint, IdempotencyRecord
from runs.models.limits import Limit, LimitLine, Permit
from runs.models.messages import Message
from runs.models.money import BudgetDefault, Price
from runs.models.overheard import Listener, Overheard
from runs.models.pools import Pool, PoolCharge, PoolMeter, PoolNotice, PoolPeriod
from runs.models.probes import Probe
from runs.models.reads import CachedRead
from runs.models.releases import Ramp, RampStart, VersionGate
from runs.models.run import (
    ACTIVE,
    ENDED,
    TIME_TO_LIVE,
    WAITING,
    Run,
    SearchTerm,
    Signal,
    State,
    Wait,
    legal_moves,
)
from runs.models.run_tags import RunTag
from runs.models.schedules import Firing, Schedule
from runs.models.telling import LogLine, Telling

__all__ = [
    "ACTIVE",
    "AgentCode",
    "AgentVersion",
    "Attribute",
    "Batch",
    "BatchItem",
    "BudgetDefault",
    "CachedRead",
    "Checkpoint",
    "ENDED",
    "Firing",
    "Halt",
    "HaltNow",
    "HaltSeen",
    "Held",
    "IdempotencyRecord",
    "Incident",
    "KEPT",
    "Limit",
    "LimitLine",
    "Listener",
    "LogLine",
    "Message",
    "NEVER",
    "Overheard",
    "Permit",
    "PolicyRevision",
    "Pool",
    "PoolCharge",
    "PoolMeter",
    "PoolNotice",
    "PoolPeriod",
    "Price",
    "Probe",
    "Process",
    "Ramp",
    "RampStart",
    "Run",
    "RunTag",
    "Schedule",
    "SearchTerm",
    "Served",
    "Signal",
    "State",
    "Stood",
    "Sweep",
    "TIME_TO_LIVE",
    "Telling",
    "VersionGate",
    "WAITING",
    "WITHOUT_PROOF",
    "Wait",
    "legal_moves",
]
