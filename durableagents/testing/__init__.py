"""The public test API.

The test kit runs an agent's story in memory within milliseconds, without server, database or settings.
"""

from durableagents.testing.clock import Clock, StoryProblem
from durableagents.testing.harness import Harness
from durableagents.testing.minds import answers, calls, says, together
from durableagents.testing.oracle import Effect, Sent

__all__ = [
    "Clock",
    "Effect",
    "Harness",
    "Sent",
    "StoryProblem",
    "answers",
    "calls",
    "says",
    "together",
]
