"""URLs of this app: `api_urls` below /api/v1, `console_urls` of its pages and forms."""

from django.urls import path

from durableagents.contrib.casework import api, delegations, inquiries, views
from durableagents.contrib.casework.common import AnswerBody, DelegationBody, InquiryBody

api_urls = [
    path("approvals/<uuid:approval_id>/claim", api.Claims.as_view(), name="api-approval-claim"),
    path("approvals/<uuid:approval_id>/release", api.Releases.as_view(), name="api-approval-release"),
    *(path(f"approvals/<uuid:approval_id>/{at}", view, name=name) for (at, name), view in api.ACTS.items()),
]

_ACT, _DECIDERS, _CASE = views.CaseAct.as_view, views.DecidersAct.as_view, "approvals/<uuid:approval_id>"
_ASK = _DECIDERS(
    act="ask", service=inquiries.ask, done="Question sent. You can still decide at any time.", body=InquiryBody
)
_ANSWER = _ACT(act="answer", service=inquiries.answer, done="Answer added to the case.", body=AnswerBody)
_WITHDRAW = _ACT(act="withdraw", service=inquiries.withdraw, done="Question withdrawn.")
_DELEGATE = _DECIDERS(
    act="hand",
    service=delegations.delegate,
    done="Delegated. They were notified and can decide for you.",
    body=DelegationBody,
)
_END = _ACT(act="back", service=delegations.take_back, done="Delegation ended.")

console_urls = [
    path(f"{_CASE}/claims", views.Claims.as_view(), name="claims"),
    path(f"{_CASE}/releases", views.Releases.as_view(), name="releases"),
    path(f"{_CASE}/inquiries", _ASK, name="inquiries"),
    path(f"{_CASE}/inquiries/<int:n>/answers", _ANSWER, name="case_answers"),
    path(f"{_CASE}/inquiries/<int:n>/withdrawals", _WITHDRAW, name="inquiry_withdrawals"),
    path(f"{_CASE}/delegations", _DELEGATE, name="delegations"),
    path(f"{_CASE}/delegations/<int:n>/ends", _END, name="delegation_ends"),
]
