"""Ways to sign in beyond a password, and pages about accounts. See README.md."""
