"""Web Push on the wire: what is said to a device, encrypted for it alone, and by which key push services know us.
Notices come in; nothing of this app is known here."""
