"""Work in several processes side by side, each with its share of the cores."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import jax

from fedpg.machine import cores


def side_by_side(function: Callable, jobs: list[tuple], processes: int, tell: Callable[[float], None] = lambda share: None) -> list:
    """function(*job) for every job, in as many processes as said, each with its share of the cores. They use no GPU.

    A process with JAX cannot fork, so they start anew and import `function`; the caller's main module must bear that.
    """
    processes = min(processes, len(jobs), cores())
    if processes <= 1:
        done = []
        for job in jobs:
            done.append(function(*job))
            tell(len(done) / len(jobs))
        return done
    spawn, share = multiprocessing.get_context("spawn"), cores() // processes
    shares = spawn.Queue()
    for number in range(processes):
        shares.put((number * share, share))
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn, initializer=_settle, initargs=(shares,)) as pool:
        waiting = [pool.submit(function, *job) for job in jobs]
        try:
            for count, job in enumerate(concurrent.futures.as_completed(waiting)):
                job.result()
                tell((count + 1) / len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [job.result() for job in waiting]


def _settle(shares: Any) -> None:
    """Makes a new process's home: its share of the cores, before JAX and MuJoCo count them, and no GPU."""
    first, count = shares.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first : first + count])
    jax.config.update("jax_platforms", "cpu")
