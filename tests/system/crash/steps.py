"""The steps of the crash-test agent and the effects of each. Imports nothing."""

# A step's effect, by `system.operation`. `pure`, `cached`, `fresh` and `withheld` have none; `hop`, `values`, `sleep`,
# `signal`, `question` and `message` are not calls.
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
# The queues that approve `staged` in order, with the number of different people each.
STAGES = (("legal", 1), ("finance_po", 2))
GATED = ("gated", "staged", "further", "patient", "changed", "again", "brief", "unsafe_gated", "clerk", "gated_cleaned")
# The tool of a step with another name: calls seen by a hook (`withheld` never has its effect), and a read that must not
# be old.
OF = {"cleaned": "keyed", "gated_cleaned": "gated", "withheld": "keyed", "fresh": "cached"}
READS = ("pure", "cached", "fresh")
# Steps that ask a model, those models' names, and the price of a million tokens in millionths of a dollar, in and out.
# `ponder` is a conversation that is compacted; `aide` and `clerk` are whole Pydantic AI agents, the latter with a tool
# that needs an approval.
THOUGHTS = ("think", "ponder", "aide")
MODELS = ("scripted:thinker", "scripted:ponderer", "scripted:aide", "scripted:clerk")
PRICE = (3_000_000, 15_000_000)
# Budgets at the start, so that runs reach a cap now and then; people raise it a little at a time.
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
# Shared pools, and what people do when one is used up: raise it, wait for the next period, or switch it off.
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
# Steps that start this many child runs at once, each with one keyed call. The one of `renewed` continues as another
# run, which hands off to a third: each makes one too.
FAMILIES = {"family": 2, "renewed": 1}
# Steps that start a child that fails and undoes its effects: without a mail, with one, or with a completed child of its
# own.
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
