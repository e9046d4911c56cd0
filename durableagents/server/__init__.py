"""The web process: connections, limits, one thread per request, health."""

# In the scope of a further request on behalf of a waiting client (streams.py).
AGAIN = "durableagents.again"
# In the scope of an admitted request: takes a coroutine function to call once the request has left its place.
AFTERWARDS = "durableagents.afterwards"
