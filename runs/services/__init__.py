"""Every change of state that a person or the outside makes: one verb each, in one transaction. Faces and workers come
in, and take each verb from its own file."""
