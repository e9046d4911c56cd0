"""Pages with forms, and views that handle a form: read it, call the service, and report the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from pydantic import BaseModel

from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.bodies import Justified
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent


class FormPage(Page):
    """A page with forms. `tell(request, refused=None, **address)` shows it, with the refused form if there is one."""

    tell: Callable[..., HttpResponse]
    # The roles that a 403 page names; if empty, those of `allowed`.
    needed: ClassVar[tuple[str, ...]] = ()

    def get(self, request: HttpRequest, **address: Any) -> HttpResponse:
        return self.tell(request, **address)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403 with the roles that are allowed."""
        if not self.needed:
            return super().refuse(request)
        return self.show(request, {"needed": self.needed}, template="errors/403.html", status=403)

    def show_forms(self, request: HttpRequest, context: dict[str, Any], refused: Refused | None) -> HttpResponse:
        """Render the page with the refused form and its status, if any."""
        given = {"refused": refused, "typed": refused.typed if refused else {}, **context}
        return self.show(request, given, status=refused.error.status if refused else 200)


class Act(FormPage):
    """Handles one form of another page; in the bases of a subclass, list it before that page's class.

    The URLconf sets the attributes. `service` is called with the values from the URL, and with `body` or its fields.
    """

    http_method_names = ["post"]
    act: str = ""  # identifies the form when it is shown again
    done: str = ""
    page: str = ""  # the name of the page to show afterwards
    has_own_page: bool = False  # that page's address has the same values
    service: Any = None
    body: type[BaseModel] = Justified
    reads: Mapping[str, Callable[[str], Any]] = {}  # by field: the function that converts its text
    defaults: Mapping[str, str] = {}  # by field: the text of an empty one, which otherwise counts as not sent
    takes_fields: bool = False  # the service takes the body's fields as keyword arguments
    aside: tuple[str, ...] = ()  # fields outside the body, passed as keyword arguments

    def post(self, request: HttpRequest, **address: Any) -> HttpResponse:
        form = Sent(request)
        try:
            result = self.perform(form, self.by, **address)
        except DurableAgentsError as error:
            return self.tell(request, refused=Refused(self.name_form(form, **address), error, form.kept), **address)
        return self.after(request, result, **address)

    @property
    def by(self) -> Actor:
        return self.acting(self.request)

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Call the service. Raises DurableAgentsError."""
        more = {name: form.aside(name) for name in self.aside}
        given = self.read(form, **address)
        if self.takes_fields or self.body is Justified:
            return self.service(*address.values(), by=by, **dict(given), **more)
        return self.service(*address.values(), given, by=by, **more)

    def read(self, form: Sent, **address: Any) -> BaseModel:
        """Return the body. Raises InvalidInput, TooLarge."""
        form.texts |= {name: text for name, text in self.defaults.items() if not form.texts.get(name)}
        return form.read(self.body, **self.reads)

    def name_form(self, form: Sent, **address: Any) -> str:
        return self.act

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Redirect to the next page, with a message about what was done."""
        messages.success(request, self.done, extra_tags="ok")
        return redirect(self.page, **(address if self.has_own_page else {}))


# --- texts of fields; invalid values are left to the body's validation to refuse
# ------------------------------------------


def whole(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else text


def decimal(text: str) -> Any:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return text


def is_on(text: str) -> Any:
    return {"on": True, "off": False}.get(text, text)


def ticked(text: str) -> Any:
    return True if text == "on" else text


def listed(text: str) -> list[str]:
    """Split a comma-separated text into names."""
    return [name for name in map(str.strip, text.split(",")) if name]
