"""Several processes: every one has its own cores, none a GPU."""

from __future__ import annotations

import os

import jax
import pytest

from fedpg.machine import cores
from fedpg.paper.processes import side_by_side


def home(job: int) -> tuple[int, int, str | None, int]:
    """Where a job runs."""
    return job, os.getpid(), jax.config.jax_platforms, cores()


def test_jobs_run_side_by_side_in_their_order():
    shares: list[float] = []
    found = side_by_side(home, [(0,), (1,), (2,)], 2, shares.append)
    assert [job for job, *_ in found] == [0, 1, 2]
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])
    if cores() > 1:
        assert os.getpid() not in {pid for _, pid, _, _ in found}
        assert {platforms for _, _, platforms, _ in found} == {"cpu"}
        assert {count for *_, count in found} == {cores() // 2}


@pytest.mark.parametrize("jobs", [[(5,)], []])
def test_one_job_stays_here(jobs):
    assert [pid for _, pid, *_ in side_by_side(home, jobs, 4)] == [os.getpid()] * len(jobs)


def fail(job: int) -> None:
    raise ValueError(f"job {job}")


def test_what_a_job_raises_is_raised_here():
    with pytest.raises(ValueError, match="job 1"):
        side_by_side(fail, [(1,), (1,)], 2)
