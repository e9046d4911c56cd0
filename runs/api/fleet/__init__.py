"""Over HTTP: an operator's word on a host, and on a worker."""
