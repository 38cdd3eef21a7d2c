"""Jobs in parallel: in processes, each with its share of the cores, or in threads."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import jax

from fedpg.machine import cores


def parallel(function: Callable, jobs: list[tuple], *, processes: int = 1, threads: int = 1, tell: Callable[[float], None] = lambda _: None) -> list:
    """function(*job) for every job, in order.

    Args:
        function: importable, if there are processes: a process with JAX cannot fork, so they start anew and import it.
        jobs: arguments of each call.
        processes: how many at most; they use the CPU only.
        threads: how many, for work that mostly compiles on one core.
        tell: called with the share of jobs done.
    """
    processes = min(processes, len(jobs), cores())
    if max(processes, threads) <= 1:
        done = []
        for job in jobs:
            done.append(function(*job))
            tell(len(done) / len(jobs))
        return done
    if processes > 1:
        spawn, share = multiprocessing.get_context("spawn"), cores() // processes
        shares = spawn.Queue()
        for number in range(processes):
            shares.put((number * share, share))
        pool = concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn, initializer=_start, initargs=(shares,))
    else:
        pool = concurrent.futures.ThreadPoolExecutor(threads)
    with pool:
        waiting = [pool.submit(function, *job) for job in jobs]
        try:
            for count, job in enumerate(concurrent.futures.as_completed(waiting)):
                job.result()
                tell((count + 1) / len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [job.result() for job in waiting]


def _start(shares: Any) -> None:
    """Gives a new process its share of the cores, before JAX and MuJoCo count them, and no GPU."""
    first, count = shares.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first : first + count])
    jax.config.update("jax_platforms", "cpu")
