"""Halts: setting and lifting (`acts`), the workers' view (`known`), and deferred deadlines (`standing`)."""
