"""Messages to runs (`sending`) and views of their recorded state (`reading`). Rules as in `command`."""
