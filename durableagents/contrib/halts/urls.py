"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.halts import api, services, views
from ledger.web.page_acts import decimal, listed, whole

api_urls = [
    path("halts", api.Halts.as_view(), name="api-halts"),
    path("halts/<uuid:halt>", api.OneHalt.as_view(), name="api-halt"),
    path("halts/<uuid:halt>/stage", api.HaltStage.as_view(), name="api-halt-stage"),
    path("halts/<uuid:halt>/lift", api.HaltLift.as_view(), name="api-halt-lift"),
]

_SET = {"body": services.HaltBody, "reads": {"refuse": lambda text: text == "on"}}
_LIFT = {"body": services.LiftBody, "reads": {"revision": whole}}
_STAGE = {
    "body": services.StageBody,
    "reads": {"share": decimal, "agents": listed, "tags": listed, "revision": whole},
}
_ACT = views.HaltAct.as_view
_NEW = _ACT(service=services.begin, act="halt", done="Halted. Workers confirm below.", **_SET)

console_urls = [
    path("halts", views.HaltsPage.as_view(), name="halts"),
    path("halts/new", _NEW, name="new_halt"),
    path(
        "halts/<uuid:halt>/stages",
        _ACT(service=services.stage, act="stage", done="Halt changed.", **_STAGE),
        name="halt_stages",
    ),
    path(
        "halts/<uuid:halt>/liftings",
        _ACT(service=services.lift, act="lift", done="Halt lifted.", **_LIFT),
        name="halt_liftings",
    ),
]
