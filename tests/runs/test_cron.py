"""What a cron line names, also where clocks are put back; and which of those that came by are started."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.services.schedules.cron import Cron, NoCron, NoZone, read, zone_of
from runs.services.schedules.due import MOST, due

UTC_ZONE = ZoneInfo("UTC")
BERLIN, NEW_YORK, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def named(line: str, after: str, n: int = 4, zone: ZoneInfo = UTC_ZONE) -> list[str]:
    """The next moments by the zone's own clock."""
    found = islice(Cron.of(line).after(at(after), zone), n)
    return [f"{moment.astimezone(zone):%m-%d %H:%M %z}" for moment in found]


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("30 6 * * *", ["11-22 06:30 +0000", "11-23 06:30 +0000"]),
        ("*/20 9-10 * * *", ["11-22 09:00 +0000", "11-22 09:20 +0000", "11-22 09:40 +0000", "11-22 10:00 +0000"]),
        ("0 12 * * mon-fri", ["11-23 12:00 +0000", "11-24 12:00 +0000"]),
        ("0 0 1 jan,jul *", ["01-01 00:00 +0000", "07-01 00:00 +0000"]),
        ("0 0 29 2 *", ["02-29 00:00 +0000", "02-29 00:00 +0000"]),
        ("0 0 13 * fri", ["11-27 00:00 +0000", "12-04 00:00 +0000", "12-11 00:00 +0000", "12-13 00:00 +0000"]),
        ("0 0 */2 * fri", ["11-27 00:00 +0000", "12-11 00:00 +0000"]),
        ("5/20 0 * * 7", ["11-22 00:05 +0000", "11-22 00:25 +0000", "11-22 00:45 +0000", "11-29 00:05 +0000"]),
        ("@weekly", ["11-29 00:00 +0000"]),
        ("@hourly", ["11-22 01:00 +0000"]),
    ],
)
def test_a_line_names_what_crontab_says(line: str, first: list[str]) -> None:
    assert named(line, "2026-11-22T00:00", len(first)) == first


def test_a_time_that_the_clocks_leave_out_is_taken_by_the_offset_from_before() -> None:
    """Berlin, 29 March 2026: after 01:59 comes 03:00."""
    assert named("30 2 * * *", "2026-03-28T00:00", 3, BERLIN) == [
        "03-28 02:30 +0100",
        "03-29 03:30 +0200",
        "03-30 02:30 +0200",
    ]
    assert named("30 2,3 * * *", "2026-03-28T12:00", 2, BERLIN) == ["03-29 03:30 +0200", "03-30 02:30 +0200"], "once"


def test_a_time_that_comes_twice_counts_once_and_hours_pass_as_they_do() -> None:
    """Berlin, 25 October 2026: 02:00 to 02:59 comes twice."""
    assert named("30 2 * * *", "2026-10-24T12:00", 2, BERLIN) == ["10-25 02:30 +0200", "10-26 02:30 +0100"]
    assert named("30 * * * *", "2026-10-24T23:00", 4, BERLIN) == [
        "10-25 01:30 +0200",
        "10-25 02:30 +0200",
        "10-25 02:30 +0100",
        "10-25 03:30 +0100",
    ]
    assert named("0 * * * *", "2026-03-29T00:30", 2, BERLIN) == ["03-29 03:00 +0200", "03-29 04:00 +0200"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["*/7 * * * *", "15 2 * * *", "0 1-3 * * *", "59 23 * * sun", "30 */2 1,15 * *"]),
    st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, ZoneInfo("UTC")]),
    st.integers(0, 366 * 24 * 60),
)
def test_moments_rise_and_none_depends_on_where_one_looks_from(line: str, zone: ZoneInfo, minutes: int) -> None:
    start = at("2026-01-01T00:00") + timedelta(minutes=minutes)
    cron = Cron.of(line)
    found = list(islice(cron.after(start, zone), 40))
    assert all(a < b for a, b in pairwise([start, *found]))
    for one, following in pairwise(found):
        assert next(cron.after(one, zone)) == following
        assert next(cron.after(following - timedelta(seconds=1), zone)) == following


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("* * * *", "4 fields"),
        ("", "0 fields"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("60 * * * *", "minute: '60'"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of the month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of the week"),
        ("*/0 * * * *", "goes nowhere"),
        ("5-1 * * * *", "backwards"),
        ("1,,2 * * * *", "no value"),
        ("a * * * *", "minute"),
        ("* * * * * *", "6 fields"),
        ("-1 * * * *", "no value"),
        ("\u0661 * * * *", "no value"),
        ("9" * 5000 + " * * * *", "minute"),
        ("@reboot", "1 fields"),
        ("1e1 * * * *", "minute"),
        ("*/100 * * * *", "no value"),
    ],
)
def test_a_line_that_is_none_or_never_comes_is_refused_by_what_is_wrong(line: str, why: str) -> None:
    with pytest.raises(NoCron, match=why):
        read(line)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "europe/berlin", "Europe/Berlin\x00", "/UTC"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(NoZone):
        zone_of(name)


# --- what is due ------------------------------------------------------------------------------------------------------

HOURLY, DAY = Cron.of("0 * * * *"), "2026-11-22T"


def plan(next_at: str, now: str, rule: str, cron: Cron = HOURLY) -> tuple[str, int, str]:
    found = due(cron, ZoneInfo("UTC"), at(next_at), at(now), rule)
    assert found.missed_at is None or found.start_for is None or found.missed_at < found.start_for
    assert found.next_at is not None and found.next_at > max(found.start_for or at(next_at), at(next_at))
    start = "" if found.start_for is None else f"{found.start_for:%d %H:%M}"
    return start, found.missed, f"{found.next_at:%d %H:%M}"


@pytest.mark.parametrize(
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
def test_what_becomes_of_times_that_came_by_its_rule_says(now: str, rule: str, expected: tuple[str, int, str]) -> None:
    assert plan(DAY + "05:00", now, rule) == expected


def test_what_is_made_up_for_is_bounded() -> None:
    minutes = Cron.of("* * * * *")
    start, missed, _ = plan(DAY + "00:00", DAY + "23:59", "all", minutes)
    assert start == "22 22:20" and missed == 24 * 60 - MOST
    found = due(minutes, ZoneInfo("UTC"), at("2016-01-01T00:00"), at(DAY + "00:00"), "all")
    assert found.start_for == at(DAY + "00:00") - timedelta(minutes=MOST - 1)
    assert found.missed == 31 * 24 * 60 - MOST + 1
