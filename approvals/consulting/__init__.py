"""Before a case is decided: whoever decides asks somebody named about it, or hands it to them."""
