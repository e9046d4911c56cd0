"""Working time by a business calendar, exact over every clock change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durableagents import WorkingHours
from durableagents.contrib.calendars.hours import DAYS, MINUTES, Calendar, NoSuchTime, Week, problem_of
from durableagents.contrib.calendars.terms import Course, resume_clock, stop_clock
from ledger.zones import zone_of
from tests.cases import each_case
from tests.tiers import many

OFFICE: Week = (*(((9 * 60, 12 * 60), (13 * 60, 18 * 60)),) * 5, (), ())
NIGHTS: Week = (((0, 6 * 60),),) * 7
ALWAYS: Week = (((0, MINUTES),),) * 7
BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/St_Johns",
    "Africa/Casablanca",
    "Pacific/Apia",
    "America/Sao_Paulo",
]


def office(*holidays: date, zone: str = "Europe/Berlin") -> Calendar:
    return Calendar("DE", 1, zone, OFFICE, frozenset(holidays))


def local(*parts: int, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime(*parts, tzinfo=zone)  # type: ignore[arg-type,misc]


def test_eight_working_hours_from_friday_afternoon_end_on_monday() -> None:
    question = local(2026, 11, 27, 16)
    assert office().after(question, timedelta(hours=8)) == local(2026, 11, 30, 16)
    assert office(date(2026, 11, 30)).after(question, timedelta(hours=8)) == local(2026, 12, 1, 16)


@each_case(
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
    # 29 March 2026: the hour from 2 to 3 is missing. 25 October 2026: it comes twice.
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
    inside = Calendar("none", 1, "Europe/Berlin", ((),) * 6 + (((130, 170),),))  # entirely in the missing hour
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


@each_case(
    ("week", "problem"),
    [
        ((), "seven"),
        (((),) * 7, "no working day"),
        ((((0, 30),), *((),) * 6), "no working day"),
        ((((600, 540),), *((),) * 6), "begin before its end"),
        ((((0, 1441),), *((),) * 6), "within the day"),
        ((((540, 720), (700, 900)), *((),) * 6), "overlap"),
        ((((i, i + 1) for i in range(7)), *((),) * 6), "more than"),
    ],
)
def test_hours_in_which_nobody_works_or_that_make_no_sense_are_refused(week: object, problem: str) -> None:
    days = tuple(tuple(day) for day in week)  # type: ignore[attr-defined]
    assert problem in problem_of(days)
    assert problem_of(OFFICE) == problem_of(NIGHTS) == problem_of(ALWAYS) == ""


@each_case("name", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "UTC\x00", "Europe"])
def test_a_zone_that_there_is_not_is_told(name: str) -> None:
    with pytest.raises(ValueError, match="IANA"):
        zone_of(name)


@each_case("hours", [0, -1, True, float("nan"), float("inf"), 1 / 7, 2001, "8", None])
def test_working_hours_are_a_positive_number_to_the_minute(hours: object) -> None:
    with pytest.raises(ValueError, match="WorkingHours"):
        WorkingHours(hours)  # type: ignore[arg-type]
    assert str(WorkingHours(8)) == "8 working hours" and str(WorkingHours(1)) == "1 working hour"
    assert WorkingHours(0.5).span == timedelta(minutes=30)


def test_a_calendar_full_of_holidays_ends_in_an_error_and_not_never() -> None:
    only = Calendar(
        "never",
        1,
        "UTC",
        (((0, 60),), *((),) * 6),
        frozenset(date(2026, 1, 5) + timedelta(weeks=i) for i in range(6000)),
    )
    with pytest.raises(NoSuchTime, match="never"):
        only.after(datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=1))


shifts = st.lists(st.integers(0, MINUTES), min_size=2, max_size=6, unique=True).map(
    lambda edges: tuple(zip(*[iter(sorted(edges)[: len(edges) // 2 * 2])] * 2, strict=True))
)
weeks = st.lists(shifts | st.just(()), min_size=7, max_size=7).map(tuple).filter(lambda week: not problem_of(week))
calendars = st.builds(
    Calendar,
    st.just("any"),
    st.just(1),
    st.sampled_from(ZONES),
    weeks,
    st.frozensets(st.dates(date(2025, 1, 1), date(2026, 12, 31)), max_size=20),
)
moments = st.datetimes(datetime(2025, 1, 1), datetime(2026, 12, 31)).map(lambda at: at.replace(tzinfo=UTC))
spans = st.integers(1, 60 * 60).map(lambda minutes: timedelta(minutes=minutes))


@settings(max_examples=many(150, 20))
@given(calendars, moments, spans)
def test_what_is_counted_forth_is_counted_back(calendar: Calendar, start: datetime, span: timedelta) -> None:
    end = calendar.after(start, span)
    assert calendar.between(start, end) == span
    assert end >= start + span, "nobody works more than the time that passes"
    assert calendar.is_open(end - timedelta(microseconds=1)), "it ends in working time"


@settings(max_examples=many(100, 20))
@given(calendars, moments, spans, spans)
def test_spans_add_up(calendar: Calendar, start: datetime, one: timedelta, two: timedelta) -> None:
    assert calendar.after(calendar.after(start, one), two) == calendar.after(start, one + two)
    later = start + two
    assert calendar.after(start, one) <= calendar.after(later, one), "who asks later is not answered before"


@settings(max_examples=many(60, 30))
@given(st.sampled_from(ZONES), moments, spans)
def test_around_the_clock_working_time_is_time(zone: str, start: datetime, span: timedelta) -> None:
    assert Calendar("always", 1, zone, ALWAYS).after(start, span) == start + span


# --- no moment counts twice -------------------------------------------------------------------------------------------

# Clocks put back by an hour, half an hour or two, by day or by night, from midnight or across it.
ODD = [
    "Europe/Berlin",
    "Africa/Casablanca",
    "America/Havana",
    "Atlantic/Azores",
    "Antarctica/Troll",
    "Asia/Beirut",
    "America/Nuuk",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Asuncion",
    "America/Sao_Paulo",
]


@lru_cache
def turns(zone: str) -> list[datetime]:
    """Return the hours of two years before which that zone's clocks changed."""
    there, hour = ZoneInfo(zone), timedelta(hours=1)
    hours = [datetime(year, 1, 1, tzinfo=UTC) + n * hour for year in (2018, 2026) for n in range(365 * 24)]
    return [at for at in hours if at.astimezone(there).utcoffset() != (at - hour).astimezone(there).utcoffset()]


def worked(calendar: Calendar, begins: datetime, minutes: int) -> list[bool]:
    """Compute working minutes by the wall clock: from the first showing of a shift's begin to the last of its end."""
    there = ZoneInfo(calendar.zone)
    start = begins - timedelta(days=2)
    items = [
        (start + timedelta(minutes=n)).astimezone(there).replace(tzinfo=None, fold=0) for n in range(minutes + 5760)
    ]
    found = [False] * len(items)
    for day in sorted({each.date() for each in items[1440:-1440]}):
        for opens, closes in calendar.week[day.weekday()] if day not in calendar.holidays else ():
            midnight = datetime(day.year, day.month, day.day)
            from_, to = midnight + timedelta(minutes=opens), midnight + timedelta(minutes=closes)
            first = next(n for n, each in enumerate(items) if each >= from_)
            if closes == MINUTES:
                last = next(n for n, each in enumerate(items) if each >= to)
            else:
                last = len(items) - next(n for n, each in enumerate(reversed(items)) if each < to)
            found[first:last] = [True] * (last - first) if last > first else []
    return found[2880 : 2880 + minutes]


odd = st.sampled_from(ODD).flatmap(lambda zone: st.tuples(st.just(zone), st.sampled_from(turns(zone))))


@settings(max_examples=many(60, 12))
@given(odd, st.sampled_from([ALWAYS, NIGHTS]) | weeks, st.booleans())
def test_clock_changes_keep_wall_time(of: tuple[str, datetime], week: Week, is_free: bool) -> None:
    zone, turn = of
    begins, minutes = turn - timedelta(hours=30), 60 * 60
    free = frozenset({turn.astimezone(ZoneInfo(zone)).date()} if is_free else ())
    calendar = Calendar("odd", 1, zone, week, free)
    seen = worked(calendar, begins, minutes)
    minute = timedelta(minutes=1)
    assert calendar.between(begins, begins + minutes * minute) == sum(seen) * minute
    assert [calendar.is_open(begins + n * minute) for n in range(0, minutes, 15)] == seen[::15]
    if whole := sum(seen):
        end = max(n for n, each in enumerate(seen) if each) + 1
        assert calendar.after(begins, whole * minute) == begins + end * minute


@each_case("zone", ODD)
def test_a_day_that_is_cut_in_two_is_as_long_as_it_was(zone: str) -> None:
    for turn in turns(zone):
        begins = turn - timedelta(hours=30)
        for cut in (30, 60, 90, 150, 180, 1410):
            halves = Calendar("halves", 1, zone, (((0, cut), (cut, MINUTES)),) * 7)
            assert halves.between(begins, begins + timedelta(hours=60)) == timedelta(hours=60)
            assert halves.after(begins, timedelta(hours=60)) == begins + timedelta(hours=60)


@each_case("zone", ["America/Havana", "Atlantic/Azores"])
def test_a_day_is_over_as_the_next_begins_where_midnight_comes_twice(zone: str) -> None:
    back = next(turn for turn in turns(zone) if turn.month > 8)
    local_day = back.astimezone(ZoneInfo(zone)).date()
    calendar = Calendar("free", 1, zone, ALWAYS, frozenset({local_day}))
    midnight = datetime(local_day.year, local_day.month, local_day.day, tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)
    assert calendar.is_open(midnight - timedelta(minutes=1)) and not calendar.is_open(midnight)
    assert calendar.between(midnight, midnight + timedelta(hours=25)) == timedelta(0)


def test_every_day_has_its_name() -> None:
    assert [date(2026, 11, 23 + i).strftime("%a").lower() for i in range(7)] == list(DAYS)


def test_a_clock_gives_back_what_stood_still_as_working_time() -> None:
    """A halt of Monday afternoon before the question, another of Tuesday afternoon during it."""
    terms = {"on_timeout": "reject", "clock_stops": 20 * 60, "steps": [], "every": 0}
    course = Course(local(2026, 11, 24, 10), terms=terms)
    first = stop_clock(
        course, [local(2026, 11, 24, 9).isoformat()], office(), local(2026, 11, 24, 9), stood=timedelta(hours=4)
    )
    assert first is not None and first.course.stop is not None
    assert first.course.stop.deadline == local(2026, 11, 24, 15), "its one hour and the four, and not at night"
    assert [*map(datetime.fromisoformat, first.course.stop.due)] == [local(2026, 11, 24, 14)]
    moved, stood = resume_clock(first.course, office(), local(2026, 11, 25, 10), stood=timedelta(hours=4))
    assert stood == timedelta(hours=5), "nine to twelve and the hour of Wednesday: the halt's four count as such"
    assert moved.deadline == local(2026, 11, 25, 16)
