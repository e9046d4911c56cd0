"""Times of cron lines, also across clock changes, and the choice of missed times to start."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durableagents.contrib.schedules.cron import Cron, InvalidCron, UnknownZone, read, zone_of
from durableagents.contrib.schedules.starting import MAX_MISSED, find_due
from tests.cases import each_case

UTC_ZONE, BERLIN, NEW_YORK = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def named(line: str, after: str, n: int, zone: ZoneInfo) -> list[str]:
    """Return the next times by the zone's own clock."""
    found = islice(read(line).after(at(after), zone), n)
    return [f"{moment.astimezone(zone):%m-%d %H:%M%z}"[:-2] for moment in found]


def test_cron_lines_name_the_documented_moments() -> None:
    """Berlin's clocks skip 02:00 to 02:59 on 29 March 2026 and repeat that hour on 25 October."""
    for line, after, zone, expected in [
        ("30 6 * * *", "2026-11-22T00:00", UTC_ZONE, ["11-22 06:30+00", "11-23 06:30+00"]),
        ("0 12 * * mon-fri", "2026-11-22T00:00", UTC_ZONE, ["11-23 12:00+00", "11-24 12:00+00"]),
        ("0 0 13 * fri", "2026-11-22T00:00", UTC_ZONE, ["11-27 00:00+00", "12-04 00:00+00"]),
        ("0 0 */2 * fri", "2026-11-22T00:00", UTC_ZONE, ["11-27 00:00+00", "12-11 00:00+00"]),
        ("0 0 29 2 *", "2026-11-22T00:00", UTC_ZONE, ["02-29 00:00+00", "02-29 00:00+00"]),
        ("0 0 L * *", "2026-11-22T00:00", UTC_ZONE, ["11-30 00:00+00", "12-31 00:00+00"]),
        ("@weekly", "2026-11-22T00:00", UTC_ZONE, ["11-29 00:00+00", "12-06 00:00+00"]),
        ("30 2 * * *", "2026-03-28T00:00", BERLIN, ["03-28 02:30+01", "03-29 03:00+02", "03-30 02:30+02"]),
        ("0 2,3 * * *", "2026-03-28T12:00", BERLIN, ["03-29 03:00+02", "03-30 02:00+02"]),
        ("30 2 * * *", "2026-10-24T12:00", BERLIN, ["10-25 02:30+02", "10-26 02:30+01"]),
        ("30 2 * * *", "2026-10-25T01:15", BERLIN, ["10-26 02:30+01"]),
        ("30 * * * *", "2026-10-25T00:00", BERLIN, ["10-25 02:30+02", "10-25 02:30+01", "10-25 03:30+01"]),
        ("0 * * * *", "2026-03-29T00:30", BERLIN, ["03-29 03:00+02", "03-29 04:00+02"]),
    ]:
        assert named(line, after, len(expected), zone) == expected, (line, after)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["*/7 * * * *", "15 2 * * *", "0 1-3 * * *", "59 23 * * sun", "30 */2 1,15 * *"]),
    st.sampled_from([BERLIN, NEW_YORK, UTC_ZONE]),
    st.integers(0, 366 * 24 * 60),
)
def test_times_ascend_and_do_not_depend_on_the_starting_point(line: str, zone: ZoneInfo, minutes: int) -> None:
    start = at("2026-01-01T00:00") + timedelta(minutes=minutes)
    cron = read(line)
    found = list(islice(cron.after(start, zone), 40))
    assert all(a < b for a, b in pairwise([start, *found]))
    for one, following in pairwise(found):
        assert next(cron.after(one, zone)) == following
        assert next(cron.after(following - timedelta(seconds=1), zone)) == following


def test_invalid_lines_name_field_and_limit_within_50_ms() -> None:
    for line, why in [
        ("* * * *", "has 4 fields instead of five"),
        ("", "has 0 fields"),
        ("* * * * * *", "has 6 fields"),
        ("@reboot", "has 1 fields"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("0 0 */31 * mon#2", "never comes"),
        ("0-00000009999999 * * * *", "minute: '0-00000009999999' is not a value, list, range or step within 0 to 59"),
        ("0000059999 * * * *", "minute: '0000059999'"),
        ("9" * 5000 + " * * * *", "minute: '9999"),
        ("1,,2 * * * *", "minute: '1,,2'"),
        ("\u0661 * * * *", "minute: "),
        ("*/0 24 * * *", "minute: '*/0'"),
        ("* 24 * * *", "hour: '24' is not a value, list, range or step within 0 to 23"),
        ("* * 0 * *", "day of the month: '0' is not a value, list, range or step within 1 to 31"),
        ("* * * 5-1 *", "month: '5-1' is not a value, list, range or step within 1 to 12"),
        ("0 0 * * 0000000010", "day of the week: '0000000010' is not a value, list, range or step within 0 to 7"),
    ]:
        start = time.thread_time()
        with pytest.raises(InvalidCron) as refused:
            read(line)
        assert time.thread_time() - start < 0.05, line
        assert str(refused.value).startswith(why), line


def test_unknown_zones_are_refused() -> None:
    for name in ("Mars/Olympus", "", "../../etc/passwd", "europe/berlin", "Europe/Berlin\x00", "/UTC", "localtime"):
        with pytest.raises(UnknownZone):
            zone_of(name)


# --- what is due ------------------------------------------------------------------------------------------------------

HOURLY, DAY = read("0 * * * *"), "2026-11-22T"


def plan(next_at: str, now: str, rule: str, cron: Cron = HOURLY) -> tuple[str, int, str]:
    found = find_due(cron, ZoneInfo("UTC"), at(next_at), at(now), rule)
    assert found.missed_at is None or found.start_for is None or found.missed_at < found.start_for
    assert found.next_at is not None and found.next_at > max(found.start_for or at(next_at), at(next_at))
    start = "" if found.start_for is None else f"{found.start_for:%d %H:%M}"
    return start, found.missed, f"{found.next_at:%d %H:%M}"


@each_case(
    ("now", "rule", "expected"),
    [
        (DAY + "05:00", "skip", ("22 05:00", 0, "22 06:00")),
        (DAY + "05:04", "once", ("22 05:00", 0, "22 06:00")),
        (DAY + "05:30", "skip", ("", 1, "22 06:00")),
        (DAY + "05:30", "once", ("22 05:00", 0, "22 06:00")),
        (DAY + "05:30", "all", ("22 05:00", 0, "22 06:00")),
        (DAY + "09:30", "skip", ("", 5, "22 10:00")),
        (DAY + "09:30", "once", ("22 09:00", 4, "22 10:00")),
        (DAY + "09:30", "all", ("22 05:00", 0, "22 06:00")),
        (DAY + "09:01", "skip", ("22 09:00", 4, "22 10:00")),
        (DAY + "09:01", "once", ("22 09:00", 4, "22 10:00")),
    ],
)
def test_rule_decides_about_due_and_missed_times(now: str, rule: str, expected: tuple[str, int, str]) -> None:
    assert plan(DAY + "05:00", now, rule) == expected


def test_missed_times_are_caught_up_with_to_a_limit() -> None:
    minutes = read("* * * * *")
    start, missed, _ = plan(DAY + "00:00", DAY + "23:59", "all", minutes)
    assert start == "22 22:20" and missed == 24 * 60 - MAX_MISSED
    found = find_due(minutes, ZoneInfo("UTC"), at("2016-01-01T00:00"), at(DAY + "00:00"), "all")
    assert found.start_for == at(DAY + "00:00") - timedelta(minutes=MAX_MISSED - 1)
    assert found.missed == 31 * 24 * 60 - MAX_MISSED + 1
