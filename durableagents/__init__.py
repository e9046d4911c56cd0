"""The public API for writing agents. Importing it loads no model, database or settings."""

from runs.engine.agents import Agent, End, Sample
from runs.engine.amending import Amendment
from runs.engine.assistants import Assistant
from runs.engine.attributes import Date, Flag, Keyword, Keywords, Money, Number
from runs.engine.budget import Budget
from runs.engine.content.hooks import Piece, Redact, Screen, Withhold, prompt_injection_markers, screen
from runs.engine.context import Context
from runs.engine.continuation import Handoff, Renew, Said
from runs.engine.errors import (
    BadSignal,
    BusinessFailure,
    ChildFailure,
    ContentRefused,
    Expired,
    Failure,
    KeyRejected,
    ModelFailure,
    NotSent,
    PolicyDenied,
    Refused,
    Rejected,
    TimedOut,
    ToolFailure,
    TransportError,
)
from runs.engine.gating.documents import Document
from runs.engine.gating.fields import Amount
from runs.engine.gating.stages import Stage
from runs.engine.gating.timing import WorkingHours
from runs.engine.journal import Grant
from runs.engine.limits import RateLimit
from runs.engine.migration import Migration
from runs.engine.secrets import Secret
from runs.engine.steps.signals_and_questions import Taken
from runs.engine.tools import DidNotHappen, Evidence, Gate, Happened, Pending, ReplayClass, ToolCall, Undo, tool

__all__ = [
    "Agent",
    "Amendment",
    "Amount",
    "Assistant",
    "BadSignal",
    "Budget",
    "BusinessFailure",
    "ChildFailure",
    "ContentRefused",
    "Context",
    "Date",
    "DidNotHappen",
    "Document",
    "End",
    "Evidence",
    "Expired",
    "Failure",
    "Flag",
    "Gate",
    "Grant",
    "Handoff",
    "Happened",
    "KeyRejected",
    "Keyword",
    "Keywords",
    "Migration",
    "ModelFailure",
    "Money",
    "NotSent",
    "Number",
    "Pending",
    "Piece",
    "PolicyDenied",
    "RateLimit",
    "Redact",
    "Refused",
    "Rejected",
    "Renew",
    "ReplayClass",
    "Said",
    "Sample",
    "Screen",
    "Secret",
    "Stage",
    "Taken",
    "TimedOut",
    "ToolCall",
    "ToolFailure",
    "TransportError",
    "Undo",
    "Withhold",
    "WorkingHours",
    "prompt_injection_markers",
    "screen",
    "tool",
]
