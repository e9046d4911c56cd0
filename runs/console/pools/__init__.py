"""The page of budgets that many runs share. Known to the addresses, and to the pages that show which a run belongs
to."""
