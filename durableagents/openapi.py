"""Generate the API's OpenAPI 3.1 description from the views."""

from __future__ import annotations

from functools import cache
from typing import Any

from drf_spectacular.authentication import SessionScheme as Session
from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent, get_doc
from pydantic.json_schema import DefsRef, GenerateJsonSchema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.web.api_base import READ, ApiView, described
from ledger.web.shapes import Page

# Component names for models whose class name several modules use.
_NAMES = {
    "approvals.api.queues.LimitRow": "QueueLimitRow",
    "durableagents.contrib.casework.common.AnswerBody": "InquiryAnswerBody",
    "durableagents.contrib.halts.services.LiftBody": "HaltLiftBody",
    "approvals.queues.acts.LiftBody": "QueueLiftBody",
    "approvals.queues.acts.LimitBody": "QueueLimitBody",
    "runs.api.injecting.ChangeRow": "ContextChangeRow",
    "runs.api.versions.ChangeRow": "AgentChangeRow",
    "runs.models.run.State": "RunState",
}

# Operation ids of acts whose path names only the object, not the action.
_OPERATIONS = {
    "api_schema_retrieve": "schema_retrieve",
    "agents_migrations": "agents_migrate",
    "approvals_decision": "approvals_decide",
    "bulk": "bulk_create",
    "callbacks": "callbacks_deliver",
    "runs_answers": "runs_answer",
    "runs_bulk": "runs_bulk_create",
    "runs_messages": "runs_messages_send",
    "runs_signals": "runs_signals_send",
    "halts_stage": "halts_stage_set",
    "queues_limit": "queues_limit_set",
    "queues_proof": "queues_proof_set",
    "runs_budget": "runs_budget_set",
    "runs_context": "runs_context_set",
    "runs_priority": "runs_priority_set",
}

# Descriptions of path parameters, by name, or by the preceding path segment and the name.
_IN_PATH = {
    "absence_id": "Id of the absence.",
    "agents/name": "Name of the agent.",
    "agents/reference": "Name of the agent, or name@version.",
    "approval_id": "Id of the approval.",
    "archived_id": "Id of the archived run.",
    "batch_id": "Id of the batch.",
    "calendar": "Name of the calendar.",
    "change_id": "Id of the proposed change.",
    "channel_id": "Id of the channel.",
    "delegations/n": "Number of the delegation.",
    "delivery_id": "Id of the delivery.",
    "deputy_id": "Id of the deputyship.",
    "documents/n": "Number of the document.",
    "finding_id": "Id of the finding.",
    "grant_id": "Id of the standing approval.",
    "halt": "Id of the halt.",
    "hold_id": "Id of the legal hold.",
    "inquiries/n": "Number of the inquiry.",
    "messages/name": "Name of the message to send, or number of the message to read.",
    "page": "Number of the page.",
    "policy": "Name of the policy.",
    "policy_id": "Id of the retention policy.",
    "budget_id": "Id of the shared budget.",
    "process_id": "Id of the process.",
    "queue": "Name of the queue.",
    "ramp_id": "Id of the ramp.",
    "report": "Name of the report.",
    "run_id": "Id of the run.",
    "schedule_id": "Id of the schedule.",
    "seq": "Number of the event in the run's journal.",
    "signals/name": "Name of the signal.",
    "stored_id": "Id of the stored report.",
    "token": "Token that the tool's call received. It works once.",
    "version": "Version of the agent.",
    "views/name": "Name of the view.",
    "wait_id": "Id of the wait that asks the question.",
    "webhook_id": "Id of the webhook.",
}


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the security scheme of API keys."""

    target_class = "durableagents.identity.auth.ApiKeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API key, sent as `Authorization: Bearer <key>`."}


class SessionScheme(Session):
    """Describes the security scheme of browser sessions."""

    target_class = "durableagents.identity.auth.HeaderSession"


class DuplicateName(Exception):
    """Two models or enums would have the same component name."""

    def __init__(self, name: str, *classes: str) -> None:
        super().__init__(f"{' and '.join(classes)} are both the component {name!r}: name one of them in openapi.py.")


class ComponentNames:
    """Assigns unique component names to classes."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}

    def name_of(self, path: str) -> str:
        """Return the component name for a dotted path of a class, including enclosing classes. Raises DuplicateName."""
        name = _NAMES.get(path) or "".join(part for part in path.split(".") if part[:1].isupper())
        if (other := self._classes.setdefault(name, path)) != path:
            raise DuplicateName(name, other, path)
        return name


_names = ComponentNames()


class JsonSchema(GenerateJsonSchema):
    """Generates pydantic's schemas with the component names of this description."""

    def get_defs_ref(self, core_mode_ref: Any) -> DefsRef:
        ref = super().get_defs_ref(core_mode_ref)
        path = core_mode_ref[0].rsplit(":", 1)[0]
        self._prioritized_defsref_choices[ref] = [DefsRef(_names.name_of(path)), ref]
        return ref


class ModelExtension(PydanticExtension):
    """Describes pydantic models as components. drf-spectacular itself would name them by the class name alone."""

    target_class = "pydantic.BaseModel"
    match_subclasses = True
    priority = 1

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        super().get_name(auto_schema, direction)  # turns off the warning about equal class names
        return _names.name_of(f"{self.target.__module__}.{self.target.__qualname__}")

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        json_schema: dict[str, Any] = self.target.model_json_schema(
            ref_template="#/components/schemas/{model}", schema_generator=JsonSchema, mode="serialization"
        )
        for name, schema in json_schema.pop("$defs", {}).items():
            auto_schema.registry.register_on_missing(
                ResolvedComponent(
                    name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema | {"title": name}
                )
            )
        # Client generators name classes by the title, so the title must be unique too.
        return json_schema | {"title": _names.name_of(f"{self.target.__module__}.{self.target.__qualname__}")}


class Operations(AutoSchema):
    """Describes operations. Each action has its own summary, and those that return a page are lists."""

    def get_summary(self) -> str | None:
        """Return the summary for the view's action. Methods with a single action override this with `described`."""
        view: Any = self.view
        summaries: dict[str, str] = getattr(view, self.method.lower()).summaries
        return summaries[view.action]

    def get_description(self) -> str:  # type: ignore[override]
        """Return the description of the view's action, of the method, or of the view."""
        method = getattr(self.view, self.method.lower())
        text: str = method.about.get(getattr(self.view, "action", "")) or get_doc(method) or get_doc(type(self.view))
        return text

    def get_operation_id(self) -> str:
        """Return the operation's id:

        `runs_list`, `runs_retrieve`, `runs_create`; for an act its name (`runs_pause`).
        """
        name: str = super().get_operation_id()
        if self.method != "POST":
            return _OPERATIONS.get(name, name)
        last, act = self.path.rsplit("/", 1)[1], name.removesuffix("_create")
        answers: Any = self.get_response_serializers()
        if last.endswith("s"):
            is_new = isinstance(answers, dict) and any(status == 201 for status, _ in answers)
            act = name if is_new else _OPERATIONS.get(act, f"{act}_set")
        return _OPERATIONS.get(act, act)

    def _resolve_path_parameters(self, variables: list[str]) -> list[dict[str, Any]]:
        parts = self.path.split("/")
        parameters: list[dict[str, Any]] = super()._resolve_path_parameters(variables)
        for each in parameters:
            before = parts[parts.index(f"{{{each['name']}}}") - 1]
            each["description"] = _IN_PATH.get(f"{before}/{each['name']}") or _IN_PATH[each["name"]]
        return parameters

    def _is_list_view(self, serializer: Any = None) -> bool:
        """Return whether the operation is a list.

        If the view has a `serializer`, that describes the response, which is then not an array.
        """
        if serializer is not None:
            return False
        answers = self.get_response_serializers()
        shapes = answers.values() if isinstance(answers, dict) else [answers]
        return any(isinstance(shape, type) and issubclass(shape, Page) for shape in shapes)


class Schema(ApiView):
    """Serves this document."""

    roles = READ

    @described("Get the OpenAPI document", dict)
    def get(self, request: Request) -> Response:
        return Response(description())


@cache
def description() -> dict[str, Any]:
    """Return the document. The description can't change while the process runs, so it is cached."""
    return SchemaGenerator().get_schema(request=None, public=True)
