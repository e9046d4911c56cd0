"""Notifications by mail, chat and browser. Other code creates them through `tell`."""
