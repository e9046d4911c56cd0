"""The environment is read once, and a wrong value is one line that names it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from durableagents import databases, env
from tests.cases import each_case


def read(monkeypatch: pytest.MonkeyPatch, **values: str) -> env.Environment:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return env.load()


def test_defaults_are_those_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURABLEAGENTS_DATA")
    found = env.load()
    assert found.data == env.CHECKOUT / ".data"
    assert (found.port, found.sandbox_port, found.sandbox_smtp_port) == (8000, 8001, 8002)
    assert (found.workers, found.slots, found.agents, found.models) == (2, 50, [], [])
    assert found.base_url == "http://127.0.0.1:8000"
    assert not found.is_demo and not found.is_production


def test_settings_are_read_from_a_folder_unless_the_environment_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = {"DURABLEAGENTS_SETTINGS_DIR": str(tmp_path)}
    (tmp_path / "DATABASE_URL").write_text("postgresql://agents:hunter22@db/agents\n")
    (tmp_path / "DURABLEAGENTS_SLOTS").write_text("7\n")
    (tmp_path / "DURABLEAGENTS_AGENTS").write_text("one,two")
    (tmp_path / "DATABASE_DIRECT_URL").write_text("")
    (tmp_path / "owner_password").write_text("not a setting")
    found = read(monkeypatch, DURABLEAGENTS_SLOTS="9", **folder)
    assert (found.database_url, found.slots, found.agents, databases.is_pooled(found)) == (
        "postgresql://agents:hunter22@db/agents",
        9,
        ["one", "two"],
        False,
    )
    (tmp_path / "DURABLEAGENTS_METRIC_TOKEN").write_text("hunter22")
    assert "did you mean DURABLEAGENTS_METRICS_TOKEN?" in "".join(env.unread())
    (tmp_path / "DURABLEAGENTS_METRICS_TOKEN").write_text("hunter22")
    with pytest.raises(env.EnvironmentProblem, match="DURABLEAGENTS_METRICS_TOKEN: use at least 16") as refused:
        env.load()
    assert "hunter22" not in str(refused.value)


def test_a_folder_of_settings_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(env.EnvironmentProblem, match=r"DURABLEAGENTS_SETTINGS_DIR=.*does not exist"):
        read(monkeypatch, DURABLEAGENTS_SETTINGS_DIR=str(tmp_path / "nowhere"))
    name = tmp_path / "DATABASE_URL"
    for spoil, why in (
        (lambda: name.mkdir(), "found a directory"),
        (lambda: (name.rmdir(), name.write_bytes(b"\xff")), "can't decode"),
        (lambda: (name.unlink(), name.symlink_to("/etc/passwd")), "resolves outside"),
    ):
        spoil()
        with pytest.raises(env.EnvironmentProblem, match=f"DURABLEAGENTS_SETTINGS_DIR={tmp_path}: .*{why}"):
            read(monkeypatch, DURABLEAGENTS_SETTINGS_DIR=str(tmp_path))


def test_a_mail_server_is_an_address_with_a_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"DURABLEAGENTS_EMAIL_FROM": "agents@example.org"}
    found = read(monkeypatch, DURABLEAGENTS_EMAIL_URL="smtp://bot:p%40ss@mail.example.org", **both).mail
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"], found["EMAIL_HOST_USER"]) == ("mail.example.org", 587, "bot")
    assert found["EMAIL_HOST_PASSWORD"] == "p@ss" and found["EMAIL_USE_TLS"] and not found["EMAIL_USE_SSL"]
    found = read(monkeypatch, DURABLEAGENTS_EMAIL_URL="smtps://mail.example.org", **both).mail
    assert found["EMAIL_PORT"] == 465 and found["EMAIL_USE_SSL"] and not found["EMAIL_USE_TLS"]
    found = read(monkeypatch, DURABLEAGENTS_EMAIL_URL="smtp+plain://127.0.0.1:8002", **both).mail
    assert found["EMAIL_PORT"] == 8002 and not found["EMAIL_USE_SSL"] and not found["EMAIL_USE_TLS"]


@each_case(
    "url",
    [
        "mail.example.org",
        "http://bot:hunter22@x",
        "smtp://",
        "smtp://bot:hunter22@x:99999",
        "smtp://bot:hunter22@x/y",
        "smtp://bot:hunter22@x?tls=no",
        "smtp://bot:hunter22@[x",
    ],
)
def test_a_wrong_mail_server_is_refused_and_its_password_not_quoted(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(env.EnvironmentProblem, match="DURABLEAGENTS_EMAIL_URL: not an address like") as refused:
        read(monkeypatch, DURABLEAGENTS_EMAIL_URL=url, DURABLEAGENTS_EMAIL_FROM="agents@example.org")
    assert "hunter22" not in str(refused.value)


def test_a_weak_metrics_token_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("hunter22", "hunter22 hunter22 hunter22"):
        with pytest.raises(env.EnvironmentProblem, match="DURABLEAGENTS_METRICS_TOKEN: use at least 16") as refused:
            read(monkeypatch, DURABLEAGENTS_METRICS_TOKEN=token)
        assert "hunter22" not in str(refused.value)
    assert read(monkeypatch, DURABLEAGENTS_METRICS_TOKEN="0123456789abcdef").metrics_token == "0123456789abcdef"


@each_case("sender", ["", "nobody", "a b@example.org", "A <a@example.org>", "a@example.org\nBcc: b@c"])
def test_a_mail_server_without_a_right_sender_is_refused(monkeypatch: pytest.MonkeyPatch, sender: str) -> None:
    with pytest.raises(env.EnvironmentProblem, match="DURABLEAGENTS_EMAIL_FROM"):
        read(monkeypatch, DURABLEAGENTS_EMAIL_URL="smtp://x", DURABLEAGENTS_EMAIL_FROM=sender)


def test_the_demo_is_there_unless_somebody_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch).has_demo and not read(monkeypatch).is_demo
    assert read(monkeypatch, DURABLEAGENTS_DEMO="1").is_demo
    without = read(monkeypatch, DURABLEAGENTS_DEMO="0")
    assert not without.has_demo and not without.is_demo
    monkeypatch.delenv("DURABLEAGENTS_DEMO")
    assert not read(monkeypatch, DURABLEAGENTS_ENV="production").has_demo


def test_smtp_port_follows_the_sandbox_port(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, SANDBOX_PORT="9100").sandbox_smtp_port == 9101
    assert read(monkeypatch, SANDBOX_SMTP_PORT="9200").sandbox_smtp_port == 9200


def test_agents_are_comma_separated_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, DURABLEAGENTS_AGENTS="a.b, c ,").agents == ["a.b", "c"]


def test_queues_belong_to_one_role_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, DURABLEAGENTS_QUEUES="refunds = support, legal=approver_legal,").queues == {
        "refunds": "support",
        "legal": "approver_legal",
    }
    assert env.Environment(DURABLEAGENTS_QUEUES={"a": "b"}).queues == {"a": "b"}  # type: ignore[call-arg]


@each_case(
    ("value", "told"),
    [
        ("refunds", "'refunds' is not queue=role"),
        ("refunds=", "is not queue=role"),
        ("Refunds=support", "is not queue=role"),
        ("a=b=c", "is not queue=role"),
        ("a=b\x1fc", "is not queue=role"),
        ("refunds=support,refunds=legal", "named twice"),
        ("refunds=operator", "the role 'operator' decides in no queue"),
        ("refunds=refunds", "names a queue and a role"),
        ("auditor=support", "names a queue and a role"),
    ],
)
def test_a_wrong_queue_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, value: str, told: str) -> None:
    with pytest.raises(env.EnvironmentProblem, match=told) as caught:
        read(monkeypatch, DURABLEAGENTS_QUEUES=value)
    assert str(caught.value).startswith("DURABLEAGENTS_QUEUES=") and "\n" not in str(caught.value)


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, PORT="", DATABASE_URL="").port == 8000


@each_case(
    ("name", "value"),
    [
        ("PORT", "abc"),
        ("PORT", "0"),
        ("PORT", "70000"),
        ("SANDBOX_PORT", "x"),
        ("SANDBOX_PORT", "65535"),
        ("DURABLEAGENTS_WORKERS", "0"),
        ("DURABLEAGENTS_SLOTS", "-1"),
        ("DURABLEAGENTS_AGENTS", "../etc"),
        ("DURABLEAGENTS_ENV", "prod"),
        ("DURABLEAGENTS_DRAIN_SECONDS", "soon"),
        ("DURABLEAGENTS_DRAIN_SECONDS", "-1"),
        ("DURABLEAGENTS_DRAIN_SECONDS", "nan"),
    ],
)
def test_a_wrong_value_is_one_line_naming_the_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(env.EnvironmentProblem) as caught:
        read(monkeypatch, **{name: value})
    assert "\n" not in str(caught.value)
    assert name in str(caught.value) or "SANDBOX_SMTP_PORT" in str(caught.value)


@pytest.mark.parametrize(
    ("port", "other"), [("8001", r"SANDBOX_PORT are both 8001"), ("8002", r"SANDBOX_PORT \+ 1\) are both 8002")]
)
def test_two_equal_ports_are_named(monkeypatch: pytest.MonkeyPatch, port: str, other: str) -> None:
    with pytest.raises(env.EnvironmentProblem, match=f"^PORT and .*{other}"):
        read(monkeypatch, PORT=port)


def test_a_wrong_number_is_answered_with_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"PORT": "abc", "DURABLEAGENTS_WORKERS": "0", "DURABLEAGENTS_DRAIN_SECONDS": "nan"}
    with pytest.raises(env.EnvironmentProblem) as caught:
        read(monkeypatch, **wrong, DURABLEAGENTS_PROBE_TTL="0", DURABLEAGENTS_DRAIN_ONLY="maybe")
    assert set(str(caught.value).split("; ")) == {
        "PORT='abc': must be a whole number from 1 to 65535",
        "DURABLEAGENTS_WORKERS='0': must be a whole number from 1 to 64",
        "DURABLEAGENTS_DRAIN_SECONDS='nan': must be a number from 0 to 86400",
        "DURABLEAGENTS_PROBE_TTL='0': must be a number above 0, at most 3650",
        "DURABLEAGENTS_DRAIN_ONLY='maybe': must be 1 or 0",
    }


def test_every_number_has_a_range() -> None:
    numbers = [field for field in env.Environment.model_fields.values() if field.annotation in (int, float)]
    assert len(numbers) > 10
    assert all(env._wanted(str(field.validation_alias), "") for field in numbers)


def test_a_bad_database_url_is_refused_without_repeating_it() -> None:
    given = env.Environment(DATABASE_URL="mysql://u:hunter2@h/x")  # type: ignore[call-arg]
    with pytest.raises(env.EnvironmentProblem, match="DATABASE_URL") as caught:
        databases.django_databases(given)
    assert "hunter2" not in str(caught.value)


def test_owner_url_is_used_for_the_owner_role_only() -> None:
    urls = {
        "DATABASE_URL": "postgresql://app:a@db.example:5433/main?sslmode=require",
        "DATABASE_OWNER_URL": "postgresql://boss:b@db.example:5433/main",
    }
    runtime = env.Environment(**urls)  # type: ignore[arg-type]
    owner = env.Environment(DURABLEAGENTS_DB_ROLE="owner", **urls)  # type: ignore[arg-type]
    chosen = databases.django_databases(runtime)["default"]
    assert (chosen["USER"], chosen["PORT"], chosen["OPTIONS"]["sslmode"]) == ("app", "5433", "require")
    assert "lock_timeout=2000" in chosen["OPTIONS"]["options"]
    assert databases.django_databases(owner)["default"]["USER"] == "boss"
    assert databases.runtime_role(runtime) == "app"
    assert databases.runtime_role(env.Environment(DATABASE_URL=urls["DATABASE_URL"])) is None  # type: ignore[call-arg]


def test_a_secret_is_made_once_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret_key"
    first = env.kept_secret(path)
    assert env.kept_secret(path) == first and len(first) >= 48
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_an_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    env.ensure_directory(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_manage_py_answers_a_wrong_variable_with_one_line_and_exit_2(manage) -> None:  # type: ignore[no-untyped-def]
    done = manage("check", env={"PORT": "abc"})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "PORT='abc'" in done.stderr


def test_the_deployment_check_names_unsafe_settings(manage, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    unsafe = {
        "DURABLEAGENTS_ENV": "production",
        "DURABLEAGENTS_SECRET_KEY": "abc",
        "DURABLEAGENTS_BASE_URL": "http://agents.example.org",
        "DURABLEAGENTS_ALLOWED_HOSTS": "*",
    }
    done = manage("check", "--deploy", env=unsafe)
    assert done.returncode == 1 and "database can't be reached" in done.stderr, done.stderr
    for name in list(unsafe)[1:]:
        assert done.stderr.count(name) == 1, (name, done.stderr)
    data = tmp_path / "data"
    data.chmod(0o755)
    (data / "master.key").chmod(0o644)
    safe = unsafe | {"DURABLEAGENTS_SECRET_KEY": "", "DURABLEAGENTS_BASE_URL": "https://agents.example.org"}
    done = manage("check", "--deploy", env=safe | {"DURABLEAGENTS_ALLOWED_HOSTS": "agents.example.org"})
    assert "E002" not in done.stderr and done.stderr.count("master.key has mode 0644") == 1, done.stderr
    assert "security." not in done.stderr and "secret_key" not in done.stderr


def test_production_sends_headers_for_its_public_address_only(manage) -> None:  # type: ignore[no-untyped-def]
    code = (
        "from django.test import Client; answer = Client().get('/healthz', secure=True, HTTP_HOST='localhost'); "
        "print(answer['Strict-Transport-Security']); print(answer['Content-Security-Policy'])"
    )
    env = {"DURABLEAGENTS_ENV": "production", "DURABLEAGENTS_BASE_URL": "https://agents.example.org/x"}
    done = manage("shell", "--no-imports", "-c", code, env=env)
    hsts, policy = done.stdout.splitlines()
    assert hsts == "max-age=31536000"
    assert "connect-src 'self' wss://agents.example.org;" in policy + ";" and "127.0.0.1" not in policy


def test_nothing_else_reads_the_environment() -> None:
    """One module reads, checks and documents every variable. A child's environment may be written anywhere."""
    readers = ("os.environ.get", "os.getenv", 'environ["')
    found = {
        f"{path.relative_to(env.CHECKOUT)}: {line.strip()}"
        for app in ("durableagents", "runs", "approvals", "ledger")
        for path in (env.CHECKOUT / app).rglob("*.py")
        for line in path.read_text().splitlines()
        if any(reader in line for reader in readers)
    }
    # The person who types a command is not a setting.
    sudo = 'runs/management/commands/declare_dead.py: through = os.environ.get("SUDO_USER", "") if uid == 0 else ""'
    # Nor is what an agent's test reads: it has no settings.
    outside = {
        "durableagents/env.py: folder = os.environ.get(SETTINGS_DIR)",
        # The secrets of tools, and keys that a setting names.
        "durableagents/secret_sources.py: text = os.environ.get(variable_of(name))",
        "durableagents/contrib/replay/plugin.py: for module in "
        '(os.environ.get("DURABLEAGENTS_AGENTS", "") if named is None else named).split(","):',
        'durableagents/contrib/replay/files.py: known = key or os.environ.get(KEY_VARIABLE, "")',
    }
    assert found - outside == {
        'runs/management/commands/worker.py: os.environ["DURABLEAGENTS_SLOTS"] = str(slots)',
        sudo,
    }
