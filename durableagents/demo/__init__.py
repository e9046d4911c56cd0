"""The demo: real agents (`vendor_onboard`, `mail_before_gate`, `literature`) and the outside world they act on
(`sandbox`, a process of its own).

Imports nothing, so that the sandbox stays as small as it says.
"""
