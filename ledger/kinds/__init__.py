"""Kinds of event that are not in `ledger/events.py`, by what they are about. There they are one vocabulary."""

from ledger.kinds.attributes import AttributesSet
from ledger.kinds.budget import BudgetDebited, BudgetExceeded, BudgetSet, ModelRouted
from ledger.kinds.messages import MessageHandled, MessageReceived
from ledger.kinds.models import ModelsChosen, TranscriptCompacted
from ledger.kinds.reads import CachedReadTaken, ToolReadAnew
from ledger.kinds.screening import ContentScreened, ContentWithheld
from ledger.kinds.starts import RunAdmitted, StartPlanned
from ledger.kinds.succession import RunCarriedOn, RunHandedOff, RunRenewed, SignalCarried

__all__ = [
    "AttributesSet",
    "BudgetDebited",
    "BudgetExceeded",
    "BudgetSet",
    "CachedReadTaken",
    "ContentScreened",
    "ContentWithheld",
    "MessageHandled",
    "MessageReceived",
    "ModelRouted",
    "ModelsChosen",
    "RunAdmitted",
    "RunCarriedOn",
    "RunHandedOff",
    "RunRenewed",
    "SignalCarried",
    "StartPlanned",
    "ToolReadAnew",
    "TranscriptCompacted",
]
