"""The files of deploy/ pass their own tools, and agree with the code and with each other."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Callable
from typing import Any

import yaml

from tests.conftest import CHECKOUT
from tests.system.deploy.composed import DEPLOY, image_environment
from tests.unit.architecture.test_requirements import imported, locked, required

MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def documents() -> list[dict[str, Any]]:
    return [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]


def test_kubernetes_accepts_the_manifests(program: Callable[[str], str]) -> None:
    command = [program("kubernetes-validate"), "--strict", *map(str, MANIFESTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed ") == len(documents())


def test_pods_are_confined_and_have_time_to_drain() -> None:
    found = documents()
    (config,) = [each["data"] for each in found if each["kind"] == "ConfigMap"]
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in found
        if "template" in each.get("spec", {})
    }
    assert set(pods) == {"migrate", "web", "workers"}
    for name, pod in pods.items():
        (container,) = pod["containers"]
        assert container["image"] == f"durableagents:{version}", name
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert {image_environment()["DURABLEAGENTS_DATA"], config["DURABLEAGENTS_SETTINGS_DIR"], "/tmp"} <= mounts
        assert {each["name"] for each in container["volumeMounts"]} <= {
            *(each["name"] for each in pod["volumes"]),
            "head",
        }
    drain = int(config["DURABLEAGENTS_DRAIN_SECONDS"])
    pause = int(pods["web"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    # STOP_SECONDS and LAST_SECONDS of durableagents/server/serve.py
    assert pods["web"]["terminationGracePeriodSeconds"] >= pause + drain + 7
    assert pods["workers"]["terminationGracePeriodSeconds"] >= drain + 20
    owners = [name for name, pod in pods.items() if "durableagents-owner" in str(pod)]
    assert owners == ["migrate"], "only the migration knows the owner of the tables"


def test_the_image_has_what_production_imports_and_no_test_tools() -> None:
    kept = set(locked("requirements-extras.lock"))
    only_tests = required("requirements-dev.in") - required("requirements.in", "requirements-extras.in")
    assert len(only_tests) > 10 and not kept & only_tests
    needed = {name for name, place in imported().items() if not place.startswith(("tests/", "docs/"))} - only_tests
    assert needed <= kept


def test_the_build_gets_every_file_that_it_copies() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Containerfile").read_text(), re.M)
    let_in = {line[1:] for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for line in copied for name in line.split()} == let_in
    assert all((CHECKOUT / name).exists() for name in let_in)
    assert (CHECKOUT / ".containerignore").read_text() == (CHECKOUT / ".dockerignore").read_text()
