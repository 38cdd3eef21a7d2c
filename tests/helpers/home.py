"""A job for `fedpg.paper.jobs`: worker processes can import it by its name."""

from __future__ import annotations

import os

import jax

from fedpg.machine import cores


def home(job: int) -> tuple:
    """Where a job runs: its number, process, platforms and cores."""
    return job, os.getpid(), jax.config.jax_platforms, cores()
