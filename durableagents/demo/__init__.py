"""The demo: a real agent (`vendor_onboard`) and the outside world it acts on (`sandbox`, a process of its own).

Imports nothing, so that the sandbox stays as small as it says.
"""
