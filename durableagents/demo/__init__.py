"""The demo: real agents (`vendor_onboard`, `mail_before_gate`, `literature`) and the outside world they act on
(`sandbox`, a process of its own).

This module imports nothing, so that starting the sandbox loads as little code as possible.
"""
