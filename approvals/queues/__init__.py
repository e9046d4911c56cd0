"""Queues as data: who decides where, up to how much, and who stands in for whom. Faces of approvals come in, and
whoever reads who asks."""
