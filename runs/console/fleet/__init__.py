"""An operator's word on a host, and on a worker, from the fleet page."""
