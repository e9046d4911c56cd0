"""Identity: accounts, sessions, keys, passwords, and throttling of guesses."""
