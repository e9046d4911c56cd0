"""Signals about sessions and passwords; Django has more (`user_logged_in`, `user_logged_out`)."""

from django.dispatch import Signal

# A signed-in session is about to get another key (`session_key`); it has got one (`before`, `after`). Both are sent in
# the transaction that changes it.
session_key_changing = Signal()
session_key_changed = Signal()
# An administrator has set the password of `user` by `request`, in this transaction.
password_set = Signal()
