"""The API of runs. Only the URL table imports from here."""
