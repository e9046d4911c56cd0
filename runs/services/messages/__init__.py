"""Messages to runs (`sending`) and views of their recorded state (`reading`).
For locks and transactions see `command`."""
