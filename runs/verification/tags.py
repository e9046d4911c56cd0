"""Verification of runs' tags."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from ledger.verification.runs import EventLine, ReadJournal

# Tags that should have a row and don't, or the reverse.
_DIFFERENT = """
    WITH run AS (SELECT id, tags, parent, came_from FROM runs_run WHERE id = %s),
    wanted AS (SELECT runs_tags_of(run.tags) AS tag FROM run
               UNION SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id IN (run.parent, run.came_from)),
    there AS (SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id = run.id)
    SELECT coalesce(wanted.tag, there.tag), there.tag IS NULL FROM wanted FULL JOIN there ON there.tag = wanted.tag
    WHERE wanted.tag IS NULL OR there.tag IS NULL ORDER BY 1 LIMIT 20"""

_MISSING = "it or a run it came from has the tag {tag!r}, but people who see runs by that tag can't see it"
_MORE = "people who see runs by the tag {tag!r} can see it, though neither it nor a run it came from has that tag"


class SeenBy:
    """Tag rows against the run's row and those of its parents and predecessors; the journal has no tags."""

    NEEDS_NO_CONTENT = True

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: EventLine) -> None:
        """Do nothing."""

    def problems(self) -> Iterator[str]:
        with connection.cursor() as cursor:
            cursor.execute(_DIFFERENT, [self.journal.run_id])
            for tag, is_missing in cursor.fetchall():
                yield (_MISSING if is_missing else _MORE).format(tag=tag)
