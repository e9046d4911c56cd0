"""Policies as data: which calls may leave, need a yes or don't, by rules that administrators keep. Faces of approvals
come in, and whoever tells the engine what is in force."""
