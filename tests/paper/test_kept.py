"""Parts of an experiment that are kept until it is done."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from fedpg.paper import kept
from fedpg.paper.runs import Run


def counted():
    """A part that counts how often it was made."""
    made = []

    def make():
        made.append(1)
        return [Run(*(np.arange(3.0) + i for i in range(6)))], float(len(made)), None

    return make, made


def killed(folder, work):
    """What `work` returned in an experiment that was stopped right afterwards."""
    try:
        with kept.keeping(folder):
            found = work()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return found


def test_a_part_is_made_once_and_comes_back_equal(tmp_path):
    make, made = counted()
    first = killed(tmp_path / "parts", lambda: kept.part(("a", 1.5), make))
    with kept.keeping(tmp_path / "parts"):
        again = kept.part(("a", 1.5), make)
        assert len(made) == 1
        kept.part(("a", 2.5), make)
        assert len(made) == 2
    for before, after in zip(first[0][0], again[0][0], strict=True):
        np.testing.assert_array_equal(before, after)
    assert isinstance(again[0][0], Run)
    assert again[1:] == (1.0, None)


def test_done_means_nothing_is_left_and_outside_nothing_is_kept(tmp_path):
    make, made = counted()
    with kept.keeping(tmp_path / "parts"):
        kept.part("a", make)
        assert len(list((tmp_path / "parts").iterdir())) == 1
    assert not (tmp_path / "parts").exists()
    assert kept.FOLDER not in os.environ
    kept.part("a", make)
    assert len(made) == 2


def test_parts_of_other_code_are_made_again(tmp_path, monkeypatch):
    make, made = counted()
    killed(tmp_path / "parts", lambda: kept.part("a", make))
    monkeypatch.setattr(kept, "source_digest", lambda: "other")
    killed(tmp_path / "parts", lambda: kept.part("a", make))
    assert len(made) == 2


class Evil:
    def __reduce__(self):
        return os.system, ("touch stolen",)


@pytest.mark.parametrize("content", [b"", b"nonsense", pickle.dumps(Evil())], ids=["cut off", "corrupt", "hostile"])
def test_a_file_that_is_not_a_part_is_made_again_and_runs_nothing(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, made = counted()
    with kept.keeping(tmp_path / "parts"):
        kept.part("a", make)
        (path,) = (tmp_path / "parts").iterdir()
        path.write_bytes(content)
        kept.part("a", make)
        assert len(made) == 2
        assert kept.part("a", make)[1] == 2.0
    assert not (tmp_path / "stolen").exists()
