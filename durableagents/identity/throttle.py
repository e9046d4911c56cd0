"""Throttle sign-in attempts across all web processes.

An attempt is counted before anything is checked, and the count is reversed on success.
"""

# Each key has an allowance that refills evenly: `limit` attempts at once, then one every `window / limit` seconds. So
# attempts are delayed, and no account is ever locked. Three keys are checked: 1. name and address together, so that
# guesses from elsewhere don't slow down anybody at this address; 2. the name, from addresses where it hasn't signed in
# within a month: this bounds guesses from many addresses, without slowing down anybody at a known address; 3. the
# address (for IPv6 the network), which bounds how many names can be tried. The table is unlogged and holds digests
# under the installation's key instead of names and addresses.

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from math import ceil
from secrets import randbelow

from django.db import connection, transaction
from django.utils.crypto import salted_hmac

from durableagents.models import Attempts
from durableagents.server.proxies import parsed
from ledger.errors import DurableAgentsError

KNOWN_FOR_SECONDS = 30 * 86_400.0
_TABLE = Attempts._meta.db_table


@dataclass(frozen=True)
class Allowance:
    """A limit: `limit` attempts at once, then one every `window_seconds / limit`."""

    kind: str
    limit: int
    window_seconds: float

    @property
    def interval_seconds(self) -> float:
        return self.window_seconds / self.limit

    def key(self, *about: str) -> bytes:
        """Return the key of this limit's row in the table."""
        return salted_hmac(
            f"durableagents.identity.throttle.{self.kind}", "\x00".join(about), algorithm="sha256"
        ).digest()


by_name_and_address = Allowance("name and address", limit=10, window_seconds=300)
by_name = Allowance("name", limit=30, window_seconds=300)
by_address = Allowance("address", limit=50, window_seconds=300)
_KNOWN = Allowance("known", limit=1, window_seconds=1)


class TooManyAttempts(DurableAgentsError):
    """The attempt is refused; the next is allowed in `wait_seconds`."""

    status, code, title = 429, "throttled", "Too many attempts"

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = max(1, ceil(wait_seconds))
        super().__init__(f"Too many failed tries. Try again in {self.wait_seconds} seconds.")


@dataclass(frozen=True)
class Attempt:
    """An allowed attempt, which was already counted."""

    name: str
    address: str

    def forgive(self) -> None:
        """Reverse the count of the attempt after success, and remember the address as known for this name."""
        address = network_of(self.address)
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {_TABLE} WHERE key = %s", [by_name_and_address.key(self.name, address)])
            forgive(by_name, self.name)
            forgive(by_address, address)
            cursor.execute(
                f"INSERT INTO {_TABLE} (key, until) VALUES (%s, clock_timestamp() + make_interval(secs => %s)) "
                "ON CONFLICT (key) DO UPDATE SET until = EXCLUDED.until",
                [_KNOWN.key(self.name, address), KNOWN_FOR_SECONDS],
            )


def count(allowance: Allowance, *about: str) -> None:
    """Count an attempt to do something other than sign in. Raises TooManyAttempts, and then counts nothing."""
    wait = _take(allowance, allowance.key(*about))
    if wait > 0:
        raise TooManyAttempts(wait)


def forgive(allowance: Allowance, *about: str) -> None:
    """Reverse the count of the last attempt after success."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {_TABLE} SET until = until - make_interval(secs => %s) WHERE key = %s",
            [allowance.interval_seconds, allowance.key(*about)],
        )


def clear(allowance: Allowance, *about: str) -> None:
    """Forget all attempts that are counted under a key."""
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {_TABLE} WHERE key = %s", [allowance.key(*about)])


def attempt(name: str, address: str) -> Attempt:
    """Count an attempt to sign in. Raises TooManyAttempts, and then counts nothing."""
    whence = network_of(address)
    # The rows are locked in this order.
    limits = [(by_name_and_address, by_name_and_address.key(name, whence))]
    if not _is_known(name, whence):
        limits.append((by_name, by_name.key(name)))
    limits.append((by_address, by_address.key(whence)))
    with transaction.atomic():
        for allowance, key in limits:
            wait = _take(allowance, key)
            if wait > 0:
                raise TooManyAttempts(wait)
    if randbelow(100) == 0:
        sweep()
    return Attempt(name, address)


def _take(allowance: Allowance, key: bytes) -> float:
    """Use up one attempt; return 0, or the seconds to wait.

    A single statement, so that a burst can't exceed the limit.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {_TABLE} AS a (key, until) "
            "VALUES (%(key)s, clock_timestamp() + make_interval(secs => %(interval)s)) ON CONFLICT (key) DO UPDATE "
            "SET until = greatest(a.until, clock_timestamp()) + make_interval(secs => %(interval)s) "
            "WHERE a.until <= clock_timestamp() + make_interval(secs => %(room)s) RETURNING key",
            {
                "key": key,
                "interval": allowance.interval_seconds,
                "room": allowance.interval_seconds * (allowance.limit - 1),
            },
        )
        if cursor.fetchone() is not None:
            return 0.0
        cursor.execute(
            f"SELECT extract(epoch FROM until - clock_timestamp()) - %s FROM {_TABLE} WHERE key = %s",
            [allowance.interval_seconds * (allowance.limit - 1), key],
        )
        row = cursor.fetchone()
    return 0.1 if row is None else max(0.1, float(row[0]))


def _is_known(name: str, network: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT EXISTS (SELECT 1 FROM {_TABLE} WHERE key = %s AND until > clock_timestamp())",
            [_KNOWN.key(name, network)],
        )
        (known,) = cursor.fetchone() or (False,)
    return bool(known)


def sweep() -> int:
    """Delete the rows of allowances that are full again; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {_TABLE} WHERE until < clock_timestamp()")
        return cursor.rowcount


def network_of(address: str) -> str:
    """Return the network of an IPv6 address, since its owner has 2^64 addresses.

    Other addresses are returned unchanged.
    """
    ip = parsed(address)
    return str(IPv6Network((ip, 64), strict=False)) if isinstance(ip, IPv6Address) else address
