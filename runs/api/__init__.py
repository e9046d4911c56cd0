"""Runs over HTTP. Only the URL table imports from here."""
