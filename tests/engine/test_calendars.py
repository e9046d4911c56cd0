"""Working time by a business calendar, exact over every change of the clocks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durableagents import WorkingHours
from runs.engine.gate.calendars import DAYS, MINUTES, Calendar, NoSuchTime, Week, wrong, zone_of

OFFICE: Week = (*(((9 * 60, 12 * 60), (13 * 60, 18 * 60)),) * 5, (), ())
NIGHTS: Week = (((0, 6 * 60),),) * 7
ALWAYS: Week = (((0, MINUTES),),) * 7
BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns",
    "Africa/Casablanca", "Pacific/Apia", "America/Sao_Paulo",
]  # fmt: skip


def office(*holidays: date, zone: str = "Europe/Berlin") -> Calendar:
    return Calendar("DE", 1, zone, OFFICE, frozenset(holidays))


def local(*parts: int, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime(*parts, tzinfo=zone)  # type: ignore[arg-type,misc]


def test_eight_working_hours_from_friday_afternoon_end_on_monday() -> None:
    asked = local(2026, 11, 27, 16)
    assert office().after(asked, timedelta(hours=8)) == local(2026, 11, 30, 16)
    assert office(date(2026, 11, 30)).after(asked, timedelta(hours=8)) == local(2026, 12, 1, 16)


@pytest.mark.parametrize(
    ("asked", "hours", "due"),
    [
        ((2026, 11, 25, 9), 3, (2026, 11, 25, 12)),  # the shift's end itself, not the next one's beginning
        ((2026, 11, 25, 12), 1, (2026, 11, 25, 14)),  # over lunch
        ((2026, 11, 25, 12, 30), 5, (2026, 11, 25, 18)),
        ((2026, 11, 25, 18), 1, (2026, 11, 26, 10)),
        ((2026, 11, 28, 3), 1, (2026, 11, 30, 10)),  # a Saturday night
    ],
)
def test_shifts_lunch_and_weekends(asked: tuple[int, ...], hours: int, due: tuple[int, ...]) -> None:
    assert office().after(local(*asked), timedelta(hours=hours)) == local(*due)


def test_the_night_in_which_the_clocks_go_forward_is_an_hour_short_and_the_other_an_hour_long() -> None:
    nights = Calendar("nights", 1, "Europe/Berlin", NIGHTS)
    # 29 March 2026: from 2 to 3 o'clock there is no hour. 25 October 2026: there are two.
    for day, worked in ((date(2026, 3, 29), 5), (date(2026, 10, 25), 7), (date(2026, 6, 1), 6)):
        begins = datetime(day.year, day.month, day.day, tzinfo=BERLIN)
        assert nights.between(begins, begins.astimezone(UTC) + timedelta(hours=12)) == timedelta(hours=worked)
        assert nights.after(begins, timedelta(hours=worked)) == datetime(day.year, day.month, day.day, 6, tzinfo=BERLIN)


def test_a_shift_that_begins_or_ends_in_the_hour_that_there_is_not() -> None:
    jumped = datetime(2026, 3, 29, 1, tzinfo=UTC)  # 2 o'clock, which is 3 o'clock
    for shift, begins, ends in (
        ((150, 240), jumped, datetime(2026, 3, 29, 2, tzinfo=UTC)),  # 02:30–04:00: from the jump on
        ((60, 150), datetime(2026, 3, 29, 0, tzinfo=UTC), jumped),  # 01:00–02:30: until the jump
    ):
        calendar = Calendar("odd", 1, "Europe/Berlin", ((shift,),) * 7)
        before = datetime(2026, 3, 28, 12, tzinfo=UTC)
        assert calendar.after(before, ends - begins) == ends
        assert not calendar.is_open(begins - timedelta(seconds=1)) and calendar.is_open(begins)
        assert calendar.is_open(ends - timedelta(seconds=1)) and not calendar.is_open(ends)
    inside = Calendar("none", 1, "Europe/Berlin", ((),) * 6 + (((130, 170),),))  # wholly in the hour that there is not
    assert inside.after(datetime(2026, 3, 28, 12, tzinfo=UTC), timedelta(minutes=1)) > datetime(2026, 4, 5, tzinfo=UTC)


def test_a_shift_that_ends_in_the_hour_that_there_is_twice_has_both() -> None:
    early = Calendar("early", 1, "Europe/Berlin", (((0, 150),),) * 7)  # until 02:30
    begins = datetime(2026, 10, 25, tzinfo=BERLIN)
    assert early.after(begins, timedelta(hours=3.5)) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert early.between(begins, begins + timedelta(hours=12)) == timedelta(hours=3.5)


def test_a_day_that_a_zone_left_out_is_no_day() -> None:
    """Samoa had no 30 December 2011."""
    apia = Calendar("apia", 1, "Pacific/Apia", ALWAYS)
    start = datetime(2011, 12, 29, tzinfo=ZoneInfo("Pacific/Apia"))
    assert apia.after(start, timedelta(hours=30)) - start.astimezone(UTC) == timedelta(hours=30)


@pytest.mark.parametrize(
    ("week", "problem"),
    [
        ((), "seven"), (((),) * 7, "no working day"), ((((0, 30),), *((),) * 6), "no working day"),
        ((((600, 540),), *((),) * 6), "begin before its end"), ((((0, 1441),), *((),) * 6), "within the day"),
        ((((540, 720), (700, 900)), *((),) * 6), "overlap"),
        ((((i, i + 1) for i in range(7)), *((),) * 6), "more than"),
    ],
)  # fmt: skip
def test_hours_in_which_nobody_works_or_that_make_no_sense_are_refused(week: object, problem: str) -> None:
    days = tuple(tuple(day) for day in week)  # type: ignore[attr-defined]
    assert problem in wrong(days)
    assert wrong(OFFICE) == wrong(NIGHTS) == wrong(ALWAYS) == ""


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "UTC\x00", "Europe"])
def test_a_zone_that_there_is_not_is_told(name: str) -> None:
    with pytest.raises(ValueError, match="IANA"):
        zone_of(name)


@pytest.mark.parametrize("hours", [0, -1, True, float("nan"), float("inf"), 1 / 7, 2001, "8", None])
def test_working_hours_are_a_positive_number_to_the_minute(hours: object) -> None:
    with pytest.raises(ValueError, match="WorkingHours"):
        WorkingHours(hours)  # type: ignore[arg-type]
    assert str(WorkingHours(8)) == "8 working hours" and str(WorkingHours(1)) == "1 working hour"
    assert WorkingHours(0.5).span == timedelta(minutes=30)


def test_a_calendar_full_of_holidays_ends_in_an_error_and_not_never() -> None:
    only = Calendar("never", 1, "UTC", (((0, 60),), *((),) * 6), frozenset(date(2026, 1, 5) + timedelta(weeks=i)
                                                                         for i in range(6000)))  # fmt: skip
    with pytest.raises(NoSuchTime, match="never"):
        only.after(datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=1))


shifts = st.lists(st.integers(0, MINUTES), min_size=2, max_size=6, unique=True).map(
    lambda edges: tuple(zip(*[iter(sorted(edges)[: len(edges) // 2 * 2])] * 2, strict=True))
)
weeks = st.lists(shifts | st.just(()), min_size=7, max_size=7).map(tuple).filter(lambda week: not wrong(week))
calendars = st.builds(
    Calendar, st.just("any"), st.just(1), st.sampled_from(ZONES), weeks,
    st.frozensets(st.dates(date(2025, 1, 1), date(2026, 12, 31)), max_size=20),
)  # fmt: skip
moments = st.datetimes(datetime(2025, 1, 1), datetime(2026, 12, 31)).map(lambda at: at.replace(tzinfo=UTC))
spans = st.integers(1, 60 * 60).map(lambda minutes: timedelta(minutes=minutes))


@settings(max_examples=150, deadline=None)
@given(calendars, moments, spans)
def test_what_is_counted_forth_is_counted_back(calendar: Calendar, start: datetime, span: timedelta) -> None:
    end = calendar.after(start, span)
    assert calendar.between(start, end) == span
    assert end >= start + span, "nobody works more than the time that passes"
    assert calendar.is_open(end - timedelta(microseconds=1)), "it ends in working time"


@settings(max_examples=100, deadline=None)
@given(calendars, moments, spans, spans)
def test_two_spans_one_after_the_other_are_one(
    calendar: Calendar, start: datetime, one: timedelta, two: timedelta
) -> None:
    assert calendar.after(calendar.after(start, one), two) == calendar.after(start, one + two)
    later = start + two
    assert calendar.after(start, one) <= calendar.after(later, one), "who asks later is not answered before"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ZONES), moments, spans)
def test_around_the_clock_working_time_is_time(zone: str, start: datetime, span: timedelta) -> None:
    assert Calendar("always", 1, zone, ALWAYS).after(start, span) == start + span


def test_every_day_has_its_name() -> None:
    assert [date(2026, 11, 23 + i).strftime("%a").lower() for i in range(7)] == list(DAYS)
