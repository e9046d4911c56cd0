"""The steps of the crash-test agent, as those who judge it know them: what each does to the outside, once. Imports
nothing."""

# A step's effect, by `system.operation`. `pure`, `cached`, `fresh` and `withheld` have none; `hop`, `values`, `sleep`,
# `signal`, `question` and `message` are no calls.
EFFECTS = {
    "keyed": "erp.create_vendor", "hooked": "erp.create_vendor", "gated": "erp.create_vendor",
    "brief": "erp.create_vendor", "think": "erp.create_vendor",
    "ponder": "erp.create_vendor",
    "cleaned": "erp.create_vendor", "gated_cleaned": "erp.create_vendor",
    "later": "portal.request_w9", "unsafe": "email.unsafe", "unsafe_gated": "email.unsafe_gated",
    "unsafe_hooked": "email.unsafe_hooked",
    "unsafe_slow": "email.unsafe_slow",
}  # fmt: skip
GATED = ("gated", "brief", "unsafe_gated", "gated_cleaned")
# Of which tool a step is, where it isn't named so: calls that a hook has a say in (`withheld` never comes to have its
# effect), and a read that must not be old.
OF = {"cleaned": "keyed", "gated_cleaned": "gated", "withheld": "keyed", "fresh": "cached"}
READS = ("pure", "cached", "fresh")
# Steps in which a model is asked, what those models are called, and what a million tokens cost in millionths of a
# dollar, in and out. `ponder` is a conversation that is made short on the way.
THOUGHTS = ("think", "ponder")
MODELS, PRICE = ("scripted:thinker", "scripted:ponderer"), (3_000_000, 15_000_000)
# What is asked for at a start, so that a run comes to a cap now and then; people raise it a little at a time.
BUDGETS = (
    {"tool_calls": 0}, {"tool_calls": 2}, {"steps": 1}, {"steps": 3}, {"model_calls": 0}, {"model_calls": 1},
    {"tokens_in": 40}, {"tokens_out": 150}, {"usd": "0.002"}, {"usd": "0", "steps": 2}, {"wall_seconds": 1},
    {"tool_calls": 1, "model_calls": 1, "wall_seconds": 1},
)  # fmt: skip
# Steps that start so many runs of the other agent at once; each makes one keyed call.
FAMILIES = {"family": 2}
# Steps that make several calls at once.
GATHERED = {
    "both": ("keyed", "hooked"), "trio": ("gated", "unsafe", "later"),
    "quartet": ("pure", "unsafe_hooked", "keyed", "keyed"), "readers": ("cached", "withheld", "fresh", "cleaned"),
    "meeting": ("signal", "keyed", "question"),
}  # fmt: skip


def raised(resource: str, used: int, reserved: int, wanted: int) -> dict[str, object]:
    """What people set when a run asks for more of something: what it wants now, beside what is under way. Soon it may
    ask again."""
    if resource == "time":
        return {"wall_seconds": 3600}
    if resource == "usd_micro":
        return {"usd": f"{(used + reserved + wanted) / 1_000_000:.6f}"}
    return {resource: used + reserved + wanted}
