"""Reads the values of secrets, for each call, from the sources named in the setting `DURABLEAGENTS_SECRETS`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from durableagents.contrib.secrets.scrubber import MIN_LENGTH, ProcessScrubber
from durableagents.secret_sources import SecretSource, SourceProblem
from ledger import scrubbing
from runs.engine.secrets import SCHEME, SecretUnavailable

CACHE_SECONDS = 30.0  # for the output of commands; environment and files are read for each call
FAILURE_SECONDS = 5.0  # a failed command is not run again for this time
LIMIT_SECONDS = 15.0  # for all secrets of a call together, even if a file system hangs
THREADS = 8
LOCKS = 64
MAX_REMEMBERED = 1000


class Store:
    """The secrets of this process. From the time it reads a value, the store keeps it out of records."""

    def __init__(self, sources: Callable[[], Sequence[SecretSource]]) -> None:
        self._sources = sources
        self._scrubber = ProcessScrubber()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="secrets")
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._printed: dict[tuple[SecretSource, str], tuple[float, bytes]] = {}
        self._failed: dict[tuple[SecretSource, str], tuple[float, str]] = {}

    async def values(self, names: Collection[str]) -> dict[str, str]:
        """Return the values by name. Raises SecretUnavailable."""
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._threads, lambda: {name: self.read(name)[0] for name in sorted(names)})
        try:
            return await asyncio.wait_for(reading, LIMIT_SECONDS)
        except TimeoutError:
            text = ", ".join(f"{SCHEME}{name}" for name in sorted(names))
            found = ", ".join(source.label for source in self._sources())
            raise SecretUnavailable(f"{text}: no answer within {LIMIT_SECONDS:g} s from {found}") from None

    def read(self, name: str) -> tuple[str, SecretSource]:
        """Return a secret's value and the source in which it was found. Raises SecretUnavailable."""
        sources = self._sources()
        for source in sources:
            try:
                data = self._cached(source, name) if source.kind == "command" else source.read(name)
                if data is not None:
                    return self._checked(name, data), source
            except SourceProblem as problem:
                raise SecretUnavailable(f"{SCHEME}{name}: {source.label} {problem}") from None
        looked = ", ".join(source.label for source in sources) or "no source: set DURABLEAGENTS_SECRETS"
        raise SecretUnavailable(f"{SCHEME}{name} was not found in {looked}")

    def _cached(self, source: SecretSource, name: str) -> bytes | None:
        """Return a command's output from the cache, so that a command that hangs is not run for each call."""
        place = source, name
        with self._locks[hash(name) % LOCKS]:
            now = time.monotonic()
            printed_at, data = self._printed.get(place, (-CACHE_SECONDS, b""))
            if now < printed_at + CACHE_SECONDS:
                return data
            failed_at, why = self._failed.get(place, (-FAILURE_SECONDS, ""))
            if now < failed_at + FAILURE_SECONDS:
                raise SourceProblem(why)
            self._forget_old(now)
            try:
                found = source.read(name) or b""
                self._checked(name, found)
            except SourceProblem as problem:
                self._failed[place] = time.monotonic(), str(problem)
                raise
            self._printed[place] = time.monotonic(), found
            return found

    def _forget_old(self, now: float) -> None:
        for kept, seconds in ((self._printed, CACHE_SECONDS), (self._failed, FAILURE_SECONDS)):
            for place, (at, _) in list(kept.items()):
                if now >= at + seconds or len(kept) > MAX_REMEMBERED:
                    kept.pop(place, None)

    def _checked(self, name: str, data: bytes) -> str:
        """Decode a value, dropping the newline at its end. Raises SourceProblem."""
        try:
            value = data.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise SourceProblem("does not return UTF-8 text: encode it, such as in base64") from None
        if not value.strip():
            raise SourceProblem("returns an empty value")
        if len(value) < MIN_LENGTH:
            raise SourceProblem(f"returns fewer than {MIN_LENGTH} characters: too short to be redacted safely")
        self._scrubber.learn(name, value)
        if scrubbing.scrubber is not self._scrubber:
            scrubbing.use(self._scrubber)
        return value
