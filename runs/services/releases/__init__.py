"""Versions for new starts: closing and ramps (`acts`), the choice (`choosing`), automatic halts (`watching`)."""
