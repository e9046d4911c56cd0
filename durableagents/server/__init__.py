"""The web process: connections, limits, one thread per request, health."""

# In the scope of a further request on behalf of a waiting client (streams.py).
AGAIN = "durableagents.again"
