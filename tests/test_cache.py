"""Compiled programs on disk: found again, of a largest size, private, and never the reason why a run fails."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedpg import cache
from fedpg.cli import main

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from fedpg import cache
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
print(cache.turn_on())

@jax.jit
def kept(x):
    return x + 1.0

@jax.jit
def calls_python(x):
    return jax.pure_callback(lambda x: np.asarray(x) + 1.0, jax.ShapeDtypeStruct((), x.dtype), x)

x = np.float32(1.0)
print(float(kept(x)), float(calls_python(x)), events.count("cache_hits"), events.count("cache_misses"))
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder for programs, in this process and those it starts; the session's own cache is out of the way."""
    for name in list(os.environ):
        if name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT")):
            monkeypatch.delenv(name)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    return cache.folder()


def start(**options) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=pipe, stderr=pipe, text=True, **options)


def finish(process: subprocess.Popen) -> tuple[str, list[float], str]:
    """What `turn_on` returned; both results, hits and misses; what was said besides."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    problem, numbers = out.splitlines()
    return problem, [float(number) for number in numbers.split()], err


def names(place: Path) -> list[str]:
    return [path.name.rpartition("-")[0].rpartition("-")[0] for path in sorted(place.glob(f"*{cache.ENTRY}"))]


def test_processes_share_programs_but_not_those_that_call_python(place):
    for process in (start(), start()):  # side by side
        assert finish(process)[1][:2] == [2.0, 2.0]
    assert names(place) == ["jit_kept"]
    assert place.stat().st_mode & 0o777 == 0o700
    assert finish(start()) == ("None", [2.0, 2.0, 1.0, 0.0], "")


def test_broken_entries_are_one_warning_and_unfinished_ones_are_made_again(place):
    finish(start())
    (entry,) = place.glob(f"*{cache.ENTRY}")
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    _, numbers, said = finish(start())
    assert numbers == [2.0, 2.0, 0.0, 1.0]
    assert said.count("Warning") == 1
    (place / entry.name.replace(cache.ENTRY, cache.USED)).unlink()  # as a process leaves it that was killed while it wrote
    assert finish(start()) == ("None", [2.0, 2.0, 0.0, 1.0], "")
    assert finish(start())[1] == [2.0, 2.0, 1.0, 0.0]


def test_a_full_disk_is_one_warning(place):
    def full() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    _, numbers, said = finish(start(preexec_fn=full))
    assert numbers == [2.0, 2.0, 0.0, 1.0]
    assert said.count("Warning") == 1


@pytest.mark.parametrize("obstacle", ["a file", "open to all"])
def test_a_folder_that_cannot_be_used_is_one_line(obstacle, place, capsys):
    if obstacle == "a file":
        place.parent.write_text("")
    else:
        place.mkdir(parents=True)
        place.chmod(0o777)
    problem, numbers, said = finish(start())
    assert "compiled programs are not kept: " in problem
    assert str(place.parent) in problem
    assert numbers == [2.0, 2.0, 0.0, 0.0]
    assert said == ""


def test_one_flag_of_every_verb_switches_it_off(place, capsys):
    assert main(["theory", "--no-cache"]) == 0
    assert not place.exists()
    assert cache.folder() is None


def test_the_choice_of_the_user_wins(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.FOLDER_OF_JAX, str(tmp_path))
    assert cache.turn_on() is None
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_where_the_system_keeps_such_files(monkeypatch, tmp_path):
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder().parent == tmp_path / "xdg" / "fedpg"
    for relative in ("", "here"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert cache.folder().parent == tmp_path / ".cache" / "fedpg"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.folder().parent == tmp_path / "Library" / "Caches" / "fedpg"
