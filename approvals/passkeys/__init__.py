"""What a passkey signed for a yes: kept beside it, and looked at again by whoever verifies a run. Deciding, sign-in and
verification come in; nothing of this app is known here."""
