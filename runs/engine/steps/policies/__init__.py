"""A call before the policies in force. The stages of a call come in."""
