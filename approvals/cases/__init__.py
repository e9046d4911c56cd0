"""What people do with a case before it is decided: change it, ask back, read it, hand it on. Faces and services of
`approvals` may come in."""
