"""Schedules: cron lines (`cron`), settings (`acts`), and starting runs (`firing`)."""
