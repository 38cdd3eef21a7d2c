"""Jobs of a long experiment: in parallel, and with a cache of finished ones, so that an interrupted command continues where it was."""

import concurrent.futures
import functools
import hashlib
import io
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import jax

import fedpg
from fedpg.machine import cores
from fedpg.runs.folder import write_atomically

FOLDER = "FEDPG_PAPER_CACHE"
"""Environment variable with the folder of the cache, which processes started by the experiment inherit."""
Found = TypeVar("Found")


@contextmanager
def cache(folder: Path) -> Iterator[None]:
    """Makes `cached` store results in `folder`, which is deleted when the block ends without an error."""
    os.environ[FOLDER] = str(folder)
    try:
        yield
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.environ.pop(FOLDER)


def cached(key: Any, make: Callable[[], Found]) -> Found:
    """make(), or its stored result for a key of the same repr and the same source code."""
    if FOLDER not in os.environ:
        return make()
    path = Path(os.environ[FOLDER]) / hashlib.sha256(f"{source_digest()} {key!r}".encode()).hexdigest()[:24]
    try:
        return Reader(io.BytesIO(path.read_bytes())).load()
    except Exception:  # missing, truncated or foreign
        found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, pickle.dumps(found))
    return found


class Reader(pickle.Unpickler):
    """Unpickles arrays and this package's tuples, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.split(".")[0] in ("numpy", "fedpg") else None
        tuples = isinstance(found, type) and issubclass(found, tuple)
        arrays = name in ("_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer")
        if not (tuples if module.startswith("fedpg.") else arrays):
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a cache")
        return found


@functools.cache
def source_digest() -> str:
    """A digest of this package's source code and presets."""
    package = Path(fedpg.__file__).parent
    files = sorted([*package.rglob("*.py"), *package.rglob("*.toml")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def parallel(
    function: Callable, jobs: list[tuple], *, processes: int = 1, threads: int = 1, tell: Callable[[float], None] = lambda share: None
) -> list:
    """function(*job) for every job, in order; `tell` is called with the share of jobs that is done.

    Args:
        function: importable, if there are processes: a process with JAX cannot fork, so they start anew and import it.
        processes: how many at most; each has its share of the cores and no GPU.
        threads: how many, for work that mostly compiles on one core.
    """
    processes = min(processes, len(jobs), cores())
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
