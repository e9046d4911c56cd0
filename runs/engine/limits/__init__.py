"""Pure: what may be said of rates, numbers and breakers, and the port by which the engine asks for a permit. For the
engine, and for the services that keep what is said."""
