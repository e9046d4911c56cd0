"""Runs that start by the clock: what a cron line means, who sets a schedule, and what it starts when. Known to the
faces and the workers."""
