"""The steps of the crash-test agent, as those who judge it know them: what each does to the outside, once. Imports
nothing."""

# A step's effect, by `system.operation`. `pure` has none; `hop`, `values`, `sleep`, `signal` and `question` are no
# calls.
EFFECTS = {
    "keyed": "erp.create_vendor", "hooked": "erp.create_vendor", "gated": "erp.create_vendor",
    "brief": "erp.create_vendor", "think": "erp.create_vendor",
    "later": "portal.request_w9", "unsafe": "email.unsafe", "unsafe_gated": "email.unsafe_gated",
    "unsafe_hooked": "email.unsafe_hooked",
    "unsafe_slow": "email.unsafe_slow",
}  # fmt: skip
GATED = ("gated", "brief", "unsafe_gated")
# Steps that make several calls at once.
GATHERED = {
    "both": ("keyed", "hooked"), "trio": ("gated", "unsafe", "later"),
    "quartet": ("pure", "unsafe_hooked", "keyed", "keyed"),
    "meeting": ("signal", "keyed", "question"),
}  # fmt: skip
