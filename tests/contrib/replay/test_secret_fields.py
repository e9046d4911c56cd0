from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, Optional, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, Secret, SecretBytes, SecretStr, field_serializer
from typing_extensions import TypedDict

from durableagents import Context, End
from durableagents.contrib.replay import declared_secrets
from durableagents.contrib.replay.declared_secrets import secrets_of_agent
from durableagents.contrib.replay.exporting import INDEX, WHAT, ExportFailed, _rename_into_place
from durableagents.contrib.replay.files import InvalidRecording, file_text
from durableagents.contrib.replay.redaction import Redaction, Secrets
from runs.queries.secret_fields import secret_paths
from tests.cases import each_case
from tests.contrib.replay.test_export import recording_of
from tests.world import agent_of, only_for_now

T = TypeVar("T")


class Login(BaseModel):
    pin: SecretStr
    others: list[Login] = []


class Boxed(BaseModel, Generic[T]):
    held: T


class Several(RootModel[list[SecretStr]]):
    pass


class Typed(TypedDict):
    code: SecretStr


class Pair(NamedTuple):
    one: int
    two: SecretStr


@dataclasses.dataclass
class Plain:
    word: SecretStr


class Odd:
    """It has no schema."""


@each_case(
    ("kind", "paths"),
    [
        (SecretStr, ["it"]),
        (SecretBytes, ["it"]),
        (Secret[int], ["it"]),
        (Optional[SecretStr], ["it"]),  # noqa: UP045
        (SecretStr | int, ["it"]),
        (list[SecretStr], ["it[]"]),
        (tuple[SecretStr, ...], ["it[]"]),
        (tuple[int, SecretStr], ["it"]),
        (set[SecretBytes], ["it[]"]),
        (list[list[SecretStr | None]], ["it[][]"]),
        (dict[str, SecretBytes], ["it[]"]),
        (dict[SecretStr, int], ["it (its keys)"]),
        (dict[str, dict[SecretStr, Login]], ["it[] (its keys)", "it[][].pin"]),
        (dict[SecretStr | int, SecretStr], ["it (its keys)", "it[]"]),
        (Login, ["it.pin"]),
        (list[Login | int], ["it[].pin"]),
        (Login | None, ["it.pin"]),
        (Boxed[SecretStr], ["it.held"]),
        (Boxed[list[Login]], ["it.held[].pin"]),
        (Several, ["it[]", "it.root[]"]),
        (Typed, ["it.code"]),
        (Pair, ["it", "it.two"]),
        (Plain, ["it.word"]),
        (Annotated[list[Annotated[SecretStr, Field()]], Field()], ["it[]"]),
        (int, []),
        (dict[str, Any], []),
        (Any, []),
        (list, []),
    ],
)
def test_it_is_found_wherever_it_stands(kind: Any, paths: list[str]) -> None:
    """Also in a model that has no schema, by the fields' types alone."""
    made: dict[str, Any] = {"model_config": ConfigDict(arbitrary_types_allowed=True)}
    model = type("Model", (BaseModel,), {"__annotations__": {"it": kind}, **made})
    assert set(secret_paths(model)) == set(paths)
    bare = type("Bare", (BaseModel,), {"__annotations__": {"it": kind, "odd": Odd}, **made})
    found = set(secret_paths(bare))
    assert found <= set(paths) and bool(found) is bool(paths)


def test_a_field_may_say_so_of_itself() -> None:
    class Says(BaseModel):
        it: str = Field(json_schema_extra={"writeOnly": True})

    assert secret_paths(Says) == ["it"]


def test_the_names_that_it_has_on_record_count_too() -> None:
    class Named(BaseModel):
        pin: SecretStr = Field(alias="Code")
        word: SecretStr = Field(serialization_alias="theWord")

    assert {"Code", "pin", "theWord", "word"} <= set(secret_paths(Named))


class Vault(BaseModel):
    """Its secrets are on record as they are: a node needs them again after a stop."""

    owner: str = "ada"
    words: list[SecretStr] = []
    by_name: dict[str, SecretStr] = {}
    by_code: dict[str, int] = {}
    number: Secret[int] | None = None

    @field_serializer("words", when_used="json")
    def _words(self, value: list[SecretStr]) -> list[str]:
        return [each.get_secret_value() for each in value]

    @field_serializer("by_name", when_used="json")
    def _by_name(self, value: dict[str, SecretStr]) -> dict[str, str]:
        return {name: each.get_secret_value() for name, each in value.items()}

    @field_serializer("number", when_used="json")
    def _number(self, value: Secret[int] | None) -> int | None:
        return None if value is None else value.get_secret_value()


class Keyed(BaseModel):
    accounts: dict[SecretStr, int] = {}

    @field_serializer("accounts", when_used="json")
    def _accounts(self, value: dict[SecretStr, int]) -> dict[str, int]:
        return {name.get_secret_value(): each for name, each in value.items()}


GIVEN = {
    Vault: {"words": ["open-sesame"], "by_name": {"door": "one-two-three"}, "number": 48151623},
    Keyed: {"accounts": {"ES9121000418": 7}},
}


@each_case(("model", "secrets"), [(Vault, ["open-sesame", "one-two-three", "48151623"]), (Keyed, ["ES9121000418"])])
def test_what_is_declared_leaves_with_no_redacted_record(model: type[BaseModel], secrets: list[str]) -> None:
    async def only(state: Any, ctx: Context) -> End:
        await ctx.signal("go")
        return End()

    with only_for_now():
        agent = agent_of(only, name="vaulted", input=model, state=model, initial=lambda given: given)
        made = recording_of(agent, GIVEN[model])
        assert all(secret in file_text(made) for secret in secrets)
        redacted = Redaction((), b"salt", secrets_of_agent(agent)).redact(made)
    assert [secret for secret in secrets if secret in file_text(redacted)] == []
    assert model.model_validate(redacted.state), "and what is left loads"
    assert "door" in file_text(redacted) or model is Keyed, "names that aren't secret stay"


def test_where_a_secret_has_no_name_everything_is_one() -> None:
    class Bare(RootModel[SecretStr]):
        pass

    agent_secrets = Secrets(is_all=True)
    assert secret_paths(Bare)[0] == ""
    assert Redaction((), b"s", agent_secrets).is_private(("anything",))


# --- a folder takes its name ------------------------------------------------------------------------------------------


def exported(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "000.json").write_text(text)
    (folder / INDEX).write_text(f'{{"what": "{WHAT}", "files": [{{"file": "000.json"}}]}}')
    return folder


def test_what_somebody_puts_there_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """After the folder was looked at, before it is replaced."""
    target, partial = exported(tmp_path / "kept", "old"), exported(tmp_path / ".partial", "new")
    (target / "mine.txt").write_text("precious")
    with pytest.raises(ExportFailed, match="was changed meanwhile by another program"):
        _rename_into_place(partial, target)
    assert (target / "mine.txt").read_text() == "precious" and (target / "000.json").read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == [".partial", "kept"]


def test_an_export_that_can_not_take_its_name_puts_the_old_one_back(tmp_path: Path) -> None:
    target = exported(tmp_path / "kept", "old")
    with pytest.raises(ExportFailed, match="can't be replaced"):
        _rename_into_place(tmp_path / ".gone", target)
    assert (target / "000.json").read_text() == "old" and [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_where_the_name_is_taken_meanwhile_nothing_is_overwritten_and_it_says_where_the_old_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, partial = exported(tmp_path / "kept", "old"), exported(tmp_path / ".partial", "new")
    rename = Path.rename

    def and_somebody_comes(self: Path, to: Path) -> Path:
        moved = rename(self, to)
        if self == target:
            exported(target, "theirs")
        return moved

    monkeypatch.setattr(Path, "rename", and_somebody_comes)
    with pytest.raises(ExportFailed, match=r"created meanwhile by another program. The earlier export is in .*\.old"):
        _rename_into_place(partial, target)
    (old,) = tmp_path.glob(".kept.*.old")
    assert (target / "000.json").read_text() == "theirs" and (old / "000.json").read_text() == "old"


def test_a_version_that_is_not_installed_is_no_reason_to_leave_it_as_it_is() -> None:
    with pytest.raises(
        InvalidRecording, match=r"nobodys@1\.0\.0 is not installed here, so its secret fields are unknown"
    ):
        declared_secrets.all_secrets(["nobodys@1.0.0"])
