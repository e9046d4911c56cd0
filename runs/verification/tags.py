"""By which tags a run is seen: its own, and those of the runs that it came from. A row too few hides a run from whoever
answers for it, and one too many shows it to somebody else."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from ledger.verification.runs import Line, ReadJournal

# Each tag with whether there should be a row, where that isn't so.
_DIFFERENT = """
    WITH run AS (SELECT id, tags, parent, came_from FROM runs_run WHERE id = %s),
    wanted AS (SELECT runs_tags_of(run.tags) AS tag FROM run
               UNION SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id IN (run.parent, run.came_from)),
    there AS (SELECT t.tag FROM run JOIN runs_runtag t ON t.run_id = run.id)
    SELECT coalesce(wanted.tag, there.tag), there.tag IS NULL FROM wanted FULL JOIN there ON there.tag = wanted.tag
    WHERE wanted.tag IS NULL OR there.tag IS NULL ORDER BY 1 LIMIT 20"""

_MISSING = "it has the tag {tag!r}, or what it came from has, and whoever sees runs by that isn't shown it"
_MORE = "it is shown to whoever sees runs by the tag {tag!r}, which neither it nor what it came from has"


class SeenBy:
    """The rows against the run's own row and the rows of those above it. The journal tells nothing of tags."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal

    def see(self, line: Line) -> None:
        """Nothing."""

    def problems(self) -> Iterator[str]:
        with connection.cursor() as cursor:
            cursor.execute(_DIFFERENT, [self.journal.run_id])
            for tag, is_missing in cursor.fetchall():
                yield (_MISSING if is_missing else _MORE).format(tag=tag)
