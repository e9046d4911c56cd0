"""What stops a story: said in words, and never taken for something that a tool or a node did."""

from __future__ import annotations


class StoryProblem(AssertionError):
    """The story can't go on as the test tells it: nothing waits for that answer, no such tool, no turn left to say. The
    `message` says what is."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class Interrupted(BaseException):
    """What leaves the engine at once, whatever a node or a branch makes of exceptions."""


class Killed(Interrupted):
    """The worker dies here: nothing catches it, nothing runs after it."""


class Stopped(Interrupted):
    """The story can't go on; raised again as StoryProblem where the test called."""
