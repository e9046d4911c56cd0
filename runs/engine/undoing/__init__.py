"""How a run undoes its effects before it ends: the plan, the visit that carries it out, and the end."""
