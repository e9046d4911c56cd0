"""Settling unknown outcomes by two people: proposals (`agreeing`) and senders (`senders`); see also `reconciling`."""
