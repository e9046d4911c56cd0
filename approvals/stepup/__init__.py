"""What a yes has to show besides being said: freshly who one is, and typed words. Deciding and its pages come in."""
