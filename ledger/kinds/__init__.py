"""Kinds of event that are not in `ledger/events.py`, by what they are about. There they are one vocabulary."""

from ledger.kinds.attributes import AttributesSet
from ledger.kinds.budget import BudgetDebited, BudgetExceeded, BudgetSet, ModelRouted
from ledger.kinds.deadlines import ApprovalEscalated, ApprovalReminded, ApprovalTimed
from ledger.kinds.forks import AnswerTakenOver, ForkMade, RunForked
from ledger.kinds.messages import ContextInjected, MessageHandled, MessageReceived
from ledger.kinds.migration import RunMigrated
from ledger.kinds.models import ModelsChosen, TranscriptCompacted
from ledger.kinds.policies import PolicyApplied
from ledger.kinds.reads import CachedReadTaken, ToolReadAnew
from ledger.kinds.recovery import (
    OutcomeProposed,
    OutcomeWithdrawn,
    RunRequeued,
    UpstreamAsked,
    UpstreamTold,
    WorkerLost,
)
from ledger.kinds.releases import VersionAssigned
from ledger.kinds.screening import ContentScreened, ContentWithheld
from ledger.kinds.starts import RunAdmitted, StartPlanned
from ledger.kinds.succession import RunCarriedOn, RunHandedOff, RunRenewed, SignalCarried
from ledger.kinds.undo import EffectLeft, EffectUndone, UndoAsked, UndoBegun, UndoRegistered
from ledger.kinds.votes import (
    ApprovalDelegated,
    ApprovalVoted,
    DelegationEnded,
    InquiryEnded,
    InquiryMade,
    PlanAmended,
)

__all__ = [
    "AnswerTakenOver",
    "ApprovalDelegated",
    "ApprovalEscalated",
    "ApprovalReminded",
    "ApprovalTimed",
    "ApprovalVoted",
    "AttributesSet",
    "BudgetDebited",
    "BudgetExceeded",
    "BudgetSet",
    "CachedReadTaken",
    "ContentScreened",
    "ContentWithheld",
    "ContextInjected",
    "DelegationEnded",
    "EffectLeft",
    "EffectUndone",
    "ForkMade",
    "InquiryEnded",
    "InquiryMade",
    "MessageHandled",
    "MessageReceived",
    "ModelRouted",
    "ModelsChosen",
    "OutcomeProposed",
    "OutcomeWithdrawn",
    "PlanAmended",
    "PolicyApplied",
    "RunAdmitted",
    "RunCarriedOn",
    "RunForked",
    "RunHandedOff",
    "RunMigrated",
    "RunRenewed",
    "RunRequeued",
    "SignalCarried",
    "StartPlanned",
    "ToolReadAnew",
    "TranscriptCompacted",
    "UpstreamAsked",
    "UpstreamTold",
    "VersionAssigned",
    "UndoAsked",
    "UndoBegun",
    "UndoRegistered",
    "WorkerLost",
]
