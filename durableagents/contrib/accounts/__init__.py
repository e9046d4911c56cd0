"""Sign-in beyond the password: second factors, OpenID Connect, and reauthentication before risky acts."""
