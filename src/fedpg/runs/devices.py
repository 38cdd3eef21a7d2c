"""Which devices a run uses."""

from __future__ import annotations

import contextlib

import jax

from fedpg.machine import cores


def use_all_cores() -> None:
    """Lets JAX see every CPU core as a device, so that seeds run side by side; too late once JAX has been used."""
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores())
