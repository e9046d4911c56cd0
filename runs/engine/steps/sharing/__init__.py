"""Where a step meets what many runs share: permits of a rate or a breaker, and room in a pool."""
