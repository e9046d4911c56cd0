"""Talking to a run from its page: the forms of its messages, their answers, its views. The console's pages and its urls
come in here."""
