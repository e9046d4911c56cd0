"""Signals about sessions and passwords, in addition to Django's own (`user_logged_in`, `user_logged_out`)."""

from django.dispatch import Signal

# Sent in the transaction that changes the key of a signed-in session: before the change (`session_key`) and after it
# (`before`, `after`).
session_key_changing = Signal()
session_key_changed = Signal()
# Sent in the transaction in which an administrator sets the password of `user` in `request`.
password_set = Signal()
