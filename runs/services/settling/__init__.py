"""Settling unknown outcomes by two people: proposals (`agreeing`) and the calls' senders (`senders`); see also
`reconciling`."""
