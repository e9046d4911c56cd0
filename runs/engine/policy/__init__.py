"""What the engine asks of policies, and what it is told: values and a port, which whoever keeps policies fills. Pure;
everybody comes in."""
