"""The web process: connections, limits, one thread per request, health."""

# Set in the scope of an internal request that the server makes on behalf of a waiting client (streams.py).
AGAIN = "durableagents.again"
# Set in the scope of an admitted request: a function that registers a coroutine function. The coroutine function is
# called once the request has released its slot.
AFTERWARDS = "durableagents.afterwards"
