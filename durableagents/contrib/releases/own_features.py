"""The feature of this app."""

from __future__ import annotations

from durableagents.contrib.releases import choosing, services
from durableagents.contrib.releases.verify import Assigned, every_release
from runs.background import Duty
from runs.features import Feature, StartRules

_ASSIGNED = """
    (SELECT jsonb_build_object('ramp', s.ramp_id, 'is_new', s.is_new, 'why', s.why, 'place', s.place)
     FROM runs_rampstart s WHERE s.run_id = ledger_head.run_id)"""


def feature() -> Feature:
    """Return the feature."""
    return Feature(
        name="releases",
        start_rules=StartRules(
            statement=choosing.RULES,
            closed=choosing.CLOSED,
            closed_in=choosing.closed_in,
            assign=choosing.assign,
            store=choosing.store,
        ),
        before_round=(choosing.RegistryRefresh(),),
        periodic=(Duty("ramps", services.IS_DUE, services.halt_ramps),),
        run_facts={"assigned": _ASSIGNED},
        run_agent_links=(("move to another version", "migrations"),),
        agent_links=(("Versions and releases", "versions"),),
        run_checks=(Assigned,),
        run_tables={"runs_rampstart": "run_id"},
        record_checks=(every_release,),
    )
