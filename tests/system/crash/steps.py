"""The steps of the crash-test agent and the effects of each. Imports nothing."""

# A step's effect, by `system.operation`. `pure`, `cached`, `fresh` and `withheld` have none; `hop`, `values`, `sleep`,
# `signal`, `question` and `message` are no calls.
EFFECTS = {
    "staged": "erp.create_vendor",
    "further": "erp.create_vendor",
    "patient": "erp.create_vendor",
    "changed": "erp.create_vendor",
    "again": "erp.create_vendor",
    "keyed": "erp.create_vendor",
    "hooked": "erp.create_vendor",
    "gated": "erp.create_vendor",
    "brief": "erp.create_vendor",
    "think": "erp.create_vendor",
    "ponder": "erp.create_vendor",
    "aide": "erp.create_vendor",
    "cleaned": "erp.create_vendor",
    "gated_cleaned": "erp.create_vendor",
    "later": "portal.request_w9",
    "unsafe": "email.unsafe",
    "unsafe_gated": "email.unsafe_gated",
    "unsafe_hooked": "email.unsafe_hooked",
    "unsafe_slow": "email.unsafe_slow",
    "clerk": "email.clerk",
}
# Who has to say yes before `staged` is called, one after the other: so many different people of each queue.
STAGES = (("legal", 1), ("finance_po", 2))
GATED = ("gated", "staged", "further", "patient", "changed", "again", "brief", "unsafe_gated", "clerk", "gated_cleaned")
# Of which tool a step is, where it isn't named so: calls that a hook has a say in (`withheld` never comes to have its
# effect), and a read that must not be old.
OF = {"cleaned": "keyed", "gated_cleaned": "gated", "withheld": "keyed", "fresh": "cached"}
READS = ("pure", "cached", "fresh")
# Steps in which a model is asked, what those models are called, and what a million tokens cost in millionths of a
# dollar, in and out. `ponder` is a conversation that is made short on the way; `aide` is a whole agent of Pydantic
# AI's, and so is `clerk`, whose one tool needs a yes.
THOUGHTS = ("think", "ponder", "aide")
MODELS = ("scripted:thinker", "scripted:ponderer", "scripted:aide", "scripted:clerk")
PRICE = (3_000_000, 15_000_000)
# What is asked for at a start, so that a run comes to a cap now and then; people raise it a little at a time.
BUDGETS = (
    {"tool_calls": 0},
    {"tool_calls": 2},
    {"steps": 1},
    {"steps": 3},
    {"model_calls": 0},
    {"model_calls": 1},
    {"tokens_in": 40},
    {"tokens_out": 150},
    {"usd": "0.002"},
    {"usd": "0", "steps": 2},
    {"wall_seconds": 1},
    {"tool_calls": 1, "model_calls": 1, "wall_seconds": 1},
)
# What the runs of a schedule share, and what people do when there is no more of it: raise it, wait for the next period,
# switch it off.
POOLS = (
    ("tool_calls", 0),
    ("tool_calls", 1),
    ("tool_calls", 3),
    ("model_calls", 0),
    ("model_calls", 1),
    ("tokens_out", 4200),
    ("tokens_out", 100),
    ("tokens_in", 30),
    ("usd", "0.002"),
    ("usd", "1"),
)
SHARING = ("raise", "raise", "refill", "refill", "off")
# Steps that start so many runs of the other agent at once; each makes one keyed call. The one of `renewed` goes on as
# another run, and that one hands off to a third: each makes one too.
FAMILIES = {"family": 2, "renewed": 1}
# Steps that start one that fails and undoes what it did, with a mail among it or without; or with a child of its own
# among it, that had ended well.
UNDONE = {"undone": 1, "undone_mailed": 1, "regretted": 1}
# Steps that make several calls at once.
GATHERED = {
    "both": ("keyed", "hooked"),
    "trio": ("gated", "unsafe", "later"),
    "quartet": ("pure", "unsafe_hooked", "keyed", "keyed"),
    "readers": ("cached", "withheld", "fresh", "cleaned"),
    "meeting": ("signal", "keyed", "question"),
}


def raised(resource: str, used: int, reserved: int, wanted: int) -> dict[str, object]:
    """Return the budget that people set when a run asks for more: used, reserved and wanted together."""
    if resource == "time":
        return {"wall_seconds": 3600}
    if resource == "usd_micro":
        return {"usd": f"{(used + reserved + wanted) / 1_000_000:.6f}"}
    return {resource: used + reserved + wanted}
