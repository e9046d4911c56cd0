"""Who asks: accounts, sessions, keys, passwords, and what slows down guessing."""
