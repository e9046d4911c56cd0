"""Which version a start gets: versions closed to new starts, and ramps from one version to another that halt
themselves. Whoever starts goes by `choosing`, people by `acts`, housekeeping by `watching`."""
