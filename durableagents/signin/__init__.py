"""How somebody shows who they are beyond the password: a second factor, another's word for it (OpenID Connect), and
once more before what is risky. Only the addresses, the settings and the administrator's pages come in here."""
