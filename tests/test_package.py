"""The package as a user gets it: wheel and sdist, in empty environments, on every supported Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from helpers.documents import bare_machine, follow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
EXTRAS = ["flower", "gym", "mujoco", "onnx", "plot", "video", "demo", "all"]


def interpreter(version: str) -> str:
    """An interpreter of this version: the running one, one on the path, or the newest of pyenv's."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(pyenv.glob(f"{version}.*/bin/python"), key=lambda path: int(path.parts[-3].rpartition(".")[2]))
    for path in (*map(str, reversed(installed)), shutil.which(f"python{version}")):
        if path is not None and run(path, "-c", "import venv, ensurepip; print('usable')").strip() == "usable":
            return path
    pytest.fail(f"these tests need Python {version}: install it with pyenv, or as python{version}")


def run(*command: str, cwd: Path | None = None) -> str:
    """The output of a command that must succeed, away from this folder and its settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX_", "XLA_"))}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=kept)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def environment(folder: Path, python: str, requirement: str) -> Path:
    """The programs of a new virtual environment that has nothing but `requirement`."""
    run(python, "-m", "venv", str(folder))
    run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement)
    run(str(folder / "bin" / "python"), "-m", "pip", "check")
    return folder / "bin"


def test_the_metadata_is_complete():
    assert PROJECT["authors"] == [{"name": "The fedpg authors"}]
    assert PYTHONS[0] == PROJECT["requires-python"].removeprefix(">=")
    assert {"classifiers", "keywords", "description", "readme", "license", "license-files"} <= set(PROJECT)
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {PROJECT['version']}\n" in citation
    assert "Momentum for the Win" in citation


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """A wheel and an sdist of the working tree."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(out), str(ROOT))
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.mark.slow
def test_the_files_that_are_no_python_are_in_wheel_and_sdist(built):
    wanted = {"py.typed", "__init__.pyi", "runs/presets.toml", "report/page.html", "flower/status.html", "flower/app/pyproject.toml"}
    assert {f"fedpg/{name}" for name in wanted} <= set(zipfile.ZipFile(built["wheel"]).namelist())
    with tarfile.open(built["sdist"]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/fedpg/{name}" for name in wanted} | {"LICENSE", "README.md", "pyproject.toml"} <= inside


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_installs_into_an_empty_environment_and_runs(kind, version, built, tmp_path):
    """Both run the demo, the wheel at full size, and a policy acts without JAX."""
    bin = environment(tmp_path / "env", interpreter(version), f"{built[kind]}[demo]")
    assert f"{PROJECT['version']}\n" == run(str(bin / "python"), "-c", "from importlib.metadata import version; print(version('fedpg'))")
    size = [] if kind == "wheel" else ["--rounds", "2", "--seeds", "2"]
    shown = run(str(bin / "fedpg"), "demo", "--out", "demo", *size, cwd=tmp_path)
    assert "CALM, federated, against local only on unseen environments: " + ("better by" if kind == "wheel" else "") in shown
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= {"demo.png", "demo.mp4", "demo.gif"}
    code = "import sys, fedpg; print(fedpg.load('demo/calm').predict([0, 0, 0, 0])[0]); sys.exit('jax' in sys.modules)"
    assert run(str(bin / "python"), "-c", code, cwd=tmp_path).strip() in ("0", "1")


def members(extra: str) -> list[str]:
    """The extras that an extra stands for: itself, if it names packages and not other extras."""
    named = re.findall(r"[a-z]+", "".join(re.findall(r"^fedpg\[(.*)\]$", "\n".join(PROJECT["optional-dependencies"][extra]), re.MULTILINE)))
    return [member for one in named for member in members(one)] or [extra]


def test_all_is_everything_that_a_user_may_want():
    assert members("demo") == ["plot", "video"]
    assert {*members("all"), "gym"} == set(PROJECT["optional-dependencies"]) - {"all", "bench", "demo", "docs", "test", "trackers"}


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_installs_and_nothing_of_it_is_missing(extra, built, tmp_path):
    bin = environment(tmp_path / "env", sys.executable, f"{built['wheel']}[{extra}]")
    found = json.loads(run(str(bin / "fedpg"), "doctor", "--json", cwd=tmp_path))["packages"]
    for member in members(extra):
        assert found[member], member
        assert None not in found[member].values(), (member, found[member])
    small = ("--rounds", "1", "--batch", "1", "--horizon", "5")
    if extra in ("flower", "all"):
        assert "serve" in run(str(bin / "fedpg"), "serve", "--help", cwd=tmp_path)
    if extra in ("gym", "all"):
        run(str(bin / "fedpg"), "train", "--env", "gym:Pendulum-v1", *small, "--out", "gym", cwd=tmp_path)
    if extra in ("mujoco", "all"):
        run(str(bin / "fedpg"), "train", "--env", "hopper", *small, "--out", "hopper", cwd=tmp_path)


@pytest.mark.slow
def test_the_page_about_installing_does_what_it_says(built, tmp_path, monkeypatch):
    """From this wheel, as nothing is published yet."""
    (tmp_path / "constraints").write_text(f"fedpg @ {built['wheel'].as_uri()}\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints"))
    (tmp_path / "empty").mkdir()
    screen = follow(ROOT / "docs" / "start" / "install.md", tmp_path / "empty", programs=bare_machine(tmp_path / "bare", monkeypatch))
    assert f"fedpg {PROJECT['version']}" in screen
