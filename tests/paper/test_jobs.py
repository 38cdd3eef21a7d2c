"""Finished jobs are cached until the experiment is done; parallel jobs keep their order, cores and exceptions."""

import os
import pickle

import numpy as np
import pytest

from fedpg.machine import cores
from fedpg.paper import jobs
from fedpg.paper.arena import Played
from helpers.home import home


def counted():
    """A job that counts how often it ran."""
    made = []

    def make():
        made.append(1)
        return [Played(np.arange(3.0), np.ones((2, 3)), 5.0, 7)], float(len(made)), None

    return make, made


def interrupted(folder, work):
    """The result of `work` in an experiment that was stopped right afterwards."""
    try:
        with jobs.cache(folder):
            found = work()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return found


def test_a_job_runs_once_and_comes_back_equal(tmp_path):
    make, made = counted()
    first = interrupted(tmp_path / "parts", lambda: jobs.cached(("a", 1.5), make))
    with jobs.cache(tmp_path / "parts"):
        again = jobs.cached(("a", 1.5), make)
        assert len(made) == 1
        jobs.cached(("a", 2.5), make)
        assert len(made) == 2
    for before, after in zip(first[0][0], again[0][0], strict=True):
        np.testing.assert_array_equal(before, after)
    assert isinstance(again[0][0], Played)
    assert again[1:] == (1.0, None)


def test_nothing_is_left_when_done_and_nothing_is_cached_outside(tmp_path):
    make, made = counted()
    with jobs.cache(tmp_path / "parts"):
        jobs.cached("a", make)
        assert len(list((tmp_path / "parts").iterdir())) == 1
    assert not (tmp_path / "parts").exists()
    assert jobs.FOLDER not in os.environ
    jobs.cached("a", make)
    assert len(made) == 2


def test_results_of_other_code_are_computed_again(tmp_path, monkeypatch):
    make, made = counted()
    interrupted(tmp_path / "parts", lambda: jobs.cached("a", make))
    monkeypatch.setattr(jobs, "source_digest", lambda: "other")
    interrupted(tmp_path / "parts", lambda: jobs.cached("a", make))
    assert len(made) == 2


class Evil:
    def __reduce__(self):
        return os.system, ("touch stolen",)


@pytest.mark.parametrize("content", [b"", b"nonsense", pickle.dumps(Evil())], ids=["truncated", "corrupt", "hostile"])
def test_a_foreign_file_is_replaced_and_runs_nothing(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, made = counted()
    with jobs.cache(tmp_path / "parts"):
        jobs.cached("a", make)
        (path,) = (tmp_path / "parts").iterdir()
        path.write_bytes(content)
        jobs.cached("a", make)
        assert len(made) == 2
        assert jobs.cached("a", make)[1] == 2.0
    assert not (tmp_path / "stolen").exists()


def test_processes_have_their_share_of_the_cores_and_no_gpu():
    shares = []
    found = jobs.parallel(home, [(0,), (1,), (2,)], processes=2, tell=shares.append)
    assert [job for job, *_ in found] == [0, 1, 2]
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])
    if cores() > 1:
        assert os.getpid() not in {pid for _, pid, _, _ in found}
        assert {platforms for _, _, platforms, _ in found} == {"cpu"}
        assert {count for *_, count in found} == {cores() // 2}


@pytest.mark.parametrize("listed", [[(5,)], []])
@pytest.mark.parametrize("threads", [1, 3])
def test_one_job_stays_in_this_process(listed, threads):
    assert [pid for _, pid, *_ in jobs.parallel(home, listed, processes=4, threads=threads)] == [os.getpid()] * len(listed)


def fail(job):
    raise ValueError(f"job {job}")


@pytest.mark.parametrize("how", [{}, {"threads": 2}])
def test_the_exception_of_a_job_is_raised(how):
    with pytest.raises(ValueError, match="job 1"):
        jobs.parallel(fail, [(1,), (1,)], **how)


def test_the_digest_follows_source_code_and_presets(monkeypatch, tmp_path):
    monkeypatch.setattr(jobs.fedpg, "__file__", str(tmp_path / "__init__.py"))
    seen = set()
    for name, text in (("a.py", "x = 1"), ("a.py", "x = 2"), ("presets.toml", "[any]"), ("presets.toml", "[all]"), ("a.png", "")):
        (tmp_path / name).write_text(text)
        seen.add(jobs.source_digest.__wrapped__())
    assert len(seen) == 4, "a picture does not count"
