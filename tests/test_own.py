"""Functions of the user's own: found in modules and files, and every mistake reported in one line."""

from __future__ import annotations

import sys

import pytest

from fedpg import own
from fedpg.errors import UserError

MODULE = """
limit = 3

def make(x):
    if x < 0:
        raise ValueError("no such\\nvalve")
    return x + limit
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current directory with mine.py, broken.py, misspelt.py and sub/random.py; imports are undone after the test."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("x = 1\nimport not_installed_anywhere\n")
    (tmp_path / "misspelt.py").write_text("def make(:\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "random.py").write_text("import neighbour\nmake = neighbour.make\n")
    (tmp_path / "sub" / "neighbour.py").write_text("def make(x): return 10 * x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name in ("mine", "neighbour") or name.startswith("fedpg_own_"):
            del sys.modules[name]


@pytest.mark.parametrize("place", ["mine", "mine.py", "./mine.py", "absolute"])
def test_a_function_of_a_module_or_a_file(folder, place):
    assert own.load(f"{folder / 'mine.py' if place == 'absolute' else place}:make", "policy")(4) == 7


def test_a_file_finds_its_neighbours_and_hides_no_module_of_python(folder):
    assert own.load("sub/random.py:make", "env")(2) == 20
    assert sys.modules["random"].__name__ == "random"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine:", "algorithm 'mine:' must be module:function or path/to/file.py:function"),
        ("mine", "algorithm 'mine' must be module:function or path/to/file.py:function"),
        ("mines:make", "mines cannot be imported: ModuleNotFoundError: No module named 'mines'"),
        ("nowhere/mine.py:make", "no file nowhere/mine.py"),
        ("broken:make", r"broken cannot be imported: ModuleNotFoundError: No module named 'not_.*' \(broken.py, line 2\)"),
        ("broken.py:make", r"broken.py cannot be imported: ModuleNotFoundError.* \(broken.py, line 2\)"),
        ("misspelt:make", "misspelt cannot be imported: SyntaxError"),
        ("mine:mak", "unknown function of mine 'mak': did you mean 'make'"),
        ("mine:limit", "algorithm mine:limit is a int, not a function"),
    ],
)
def test_what_cannot_be_loaded_is_reported_in_one_line(folder, name, message):
    with pytest.raises(UserError, match=f"^{message}") as error:
        own.load(name, "algorithm")
    assert "\n" not in str(error.value)


def test_an_exception_of_the_function_names_its_line(folder):
    make = own.load("mine.py:make", "env")
    assert own.call("mine.py:make", make, x=1) == 4
    with pytest.raises(UserError, match=r"^mine.py:make raised ValueError: no such valve \(mine.py, line 6\)$"):
        own.call("mine.py:make", make, -1)
    assert own.call("dict", dict, name=1, function=2) == {"name": 1, "function": 2}
