"""What makes a release: notes, conda recipe, trials of archives, citation, and the files that services read."""

import hashlib
import io
import re
import tarfile
import tomllib
from pathlib import Path

import clean
import conda
import notes
import pytest

import adprotocol

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
VERSION = adprotocol.__version__
CHANGELOG = f"""\
# Changelog

## [Unreleased]

## [{VERSION}] - 2026-12-01

### Added

- One.

## [0.0.1] - 2026-01-01
"""


def test_the_notes_are_the_entry_of_the_changelog():
    assert notes.version() == VERSION
    assert notes.notes(f"v{VERSION}", CHANGELOG) == "### Added\n\n- One.\n"


def test_the_changelog_has_the_heading_that_the_steps_of_a_release_turn_into_its_entry():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = changelog.replace("## [Unreleased]\n", f"## [{VERSION}] - 2026-12-01\n", 1)
    entry = notes.notes(f"v{VERSION}", released)
    assert "\n- " in entry
    assert "## [" not in entry


@pytest.mark.parametrize(
    ("tag", "changelog", "reason"),
    [
        ("v0.0.1", CHANGELOG, "the tag is v0.0.1"),
        (VERSION, CHANGELOG, "the tag is"),
        (f"v{VERSION}", CHANGELOG.replace("2026-12-01", "unreleased"), "no heading"),
        (f"v{VERSION}", "# Changelog\n", "no heading"),
    ],
)
def test_a_tag_that_does_not_agree_is_refused(tag, changelog, reason):
    with pytest.raises(SystemExit, match=reason):
        notes.notes(tag, changelog)


@pytest.fixture
def sdist(tmp_path):
    path = tmp_path / f"adprotocol-{VERSION}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in (("pyproject.toml", (ROOT / "pyproject.toml").read_bytes()), ("PKG-INFO", b"")):
            info = tarfile.TarInfo(f"adprotocol-{VERSION}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_the_conda_recipe_is_that_of_the_metadata(sdist):
    yaml = pytest.importorskip("yaml")
    data = yaml.safe_load(conda.recipe(sdist))
    assert data["context"]["version"] == VERSION
    assert data["source"]["sha256"] == hashlib.sha256(sdist.read_bytes()).hexdigest()
    requirements = data["requirements"]
    assert [line.replace(" ", "") for line in requirements["run"][1:]] == PROJECT["project"]["dependencies"]
    assert [line.replace(" ", "") for line in requirements["host"][2:]] == PROJECT["build-system"]["requires"]
    extras = PROJECT["project"]["optional-dependencies"]
    floors = {extras[name][0].replace("torch", "pytorch") for name in ("jax", "torch", "autograd")}
    assert {line.replace(" ", "") for line in requirements["run_constraints"]} == floors
    (script,) = PROJECT["project"]["scripts"].items()
    assert data["build"]["python"]["entry_points"] == [" = ".join(script)]
    assert data["about"]["license"] == PROJECT["project"]["license"]


def test_a_trial_runs_what_each_extra_installs():
    tried = {extra: clean.commands(extra) for extra in ("", *clean.FRAMEWORKS, "demo", "conformance", "all")}
    assert set(tried) == {"", *PROJECT["project"]["optional-dependencies"]}
    assert set(clean.FRAMEWORKS) == set(PROJECT["project"]["entry-points"]["adprotocol"])
    assert all(len(commands) > len(tried[""]) for extra, commands in tried.items() if extra)


def test_an_archive_that_cannot_be_installed_fails(tmp_path, capsys):
    archive = tmp_path / "adprotocol-9.9-py3-none-any.whl"
    archive.write_bytes(b"nothing")
    assert clean.trial(archive, "", tmp_path / "home") is False
    assert f"FAILED {archive.name} []: -m pip install" in capsys.readouterr().out


def test_the_citation_is_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"(?m)^version: (.+)$", citation)[1] == VERSION
    assert re.search(r"(?m)^license: (.+)$", citation)[1] == PROJECT["project"]["license"]
    for url in re.findall(r"https://\S+", citation):
        assert url in PROJECT["project"]["urls"].values()


def test_a_release_is_published_without_a_token_and_only_after_the_trials():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    assert jobs["try"]["needs"] == "build"
    assert jobs["publish"]["needs"] == "try"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not any("password" in str(step) for step in jobs["publish"]["steps"])
    listed = [line for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert [
        f"Programming Language :: Python :: {python}" for python in jobs["try"]["strategy"]["matrix"]["python"]
    ] == listed
    ran = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    for script in re.findall(r"release/\w+\.py", " ".join(ran)):
        assert (ROOT / script).is_file()


def test_the_service_that_builds_the_pages_builds_these():
    yaml = pytest.importorskip("yaml")
    data = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text("utf-8"))
    assert (ROOT / data["sphinx"]["configuration"]).is_file()
    assert data["sphinx"]["fail_on_warning"] is True
    (command,) = data["build"]["jobs"]["install"]
    assert "--constraint constraints.txt" in command
    assert PROJECT["dependency-groups"]["docs"]
