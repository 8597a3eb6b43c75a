"""What a release says of itself: its version, what it needs, and what its workflows run."""

import ast
import re
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hf_vlm_rl
from hf_vlm_rl import _install
from tests.documents.imports import modules
from tests.documents.pages import ROOT
from tests.documents.test_commands import TARGETS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = [Requirement(each) for each in PROJECT["dependencies"]]
OPTIONAL = {
    canonicalize_name(Requirement(each).name)
    for name, extra in PROJECT["optional-dependencies"].items()
    if name not in ("dev", "docs", "test")
    for each in extra
}
# Modules that are not called like the package that has them.
PACKAGES = {"PIL": "pillow", "google": "protobuf", "yaml": "pyyaml"}
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_the_version_is_the_changelogs_and_the_citations():
    newest = re.search(
        r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest[1] == hf_vlm_rl.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == hf_vlm_rl.__version__


def test_every_dependency_has_a_floor():
    floors = {each.name: [bound for bound in each.specifier if bound.operator == ">="] for each in REQUIRED}
    assert [name for name, bounds in floors.items() if len(bounds) != 1] == []


def test_every_import_is_of_a_dependency():
    imported = {}
    for module, tree in modules().items():
        for node in ast.walk(tree):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in names:
                imported.setdefault(name.split(".")[0], f"src/hf_vlm_rl/{module}.py")
    others = imported.keys() - sys.stdlib_module_names - {"hf_vlm_rl"}
    packages = {name: canonicalize_name(PACKAGES.get(name, name)) for name in others}
    known = {canonicalize_name(each.name) for each in REQUIRED} | OPTIONAL
    assert {name: imported[name] for name, package in packages.items() if package not in known} == {}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_make_what_there_is(workflow):
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    lanes = [lane for job in jobs for lane in job.get("strategy", {}).get("matrix", {}).get("lane", [])]
    runs = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    made = [word for run in runs for word in re.findall(r"^make ([a-z-]+)$", run, re.MULTILINE)]
    assert {*lanes, *made} <= TARGETS


def test_every_issue_asks_for_the_environment():
    forms = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert forms
    for form in forms:
        asked = [each["attributes"]["label"] for each in yaml.safe_load(form.read_text())["body"]]
        assert any("`hf-vlm-rl env --model" in label for label in asked), form.name


USES = re.compile(r"uses: (\S+)@(\S+)(?:  # (v\d+\.\d+\.\d+))?$", flags=re.MULTILINE)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit_and_version(workflow):
    used = USES.findall(workflow.read_text())
    assert len(used) == workflow.read_text().count("uses:")
    assert [each for each in used if not re.fullmatch("[0-9a-f]{40}", each[1]) or not each[2]] == []


def test_an_action_is_of_one_commit_in_all_workflows():
    used = {each for workflow in WORKFLOWS for each in USES.findall(workflow.read_text())}
    assert len(used) == len({name for name, _, _ in used})


def test_jobs_have_the_least_permissions_and_only_publishing_ones_sign():
    granted = {}
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] in ({}, {"contents": "read"})
        for name, job in workflow["jobs"].items():
            granted[path.stem, name] = job.get("permissions", {})
            kept = [step["with"] for step in job["steps"] if "actions/checkout" in step.get("uses", "")]
            assert all(each["persist-credentials"] is False for each in kept)
    writing = {job: set(rights) for job, rights in granted.items() if "write" in rights.values()}
    assert writing == {
        ("pages", "deploy"): {"pages", "id-token"},
        ("release", "publish"): {"id-token", "attestations"},
        ("release", "release"): {"contents"},
    }


def test_nothing_is_installed_from_the_index_before_a_release_is_there():
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("examples/*.py"),
    ]
    named = [str(page) for page in pages if re.search(r"pip install ['\"]hf-vlm-rl\b", page.read_text())]
    assert bool(named) == (_install.SOURCE == "hf-vlm-rl"), named
