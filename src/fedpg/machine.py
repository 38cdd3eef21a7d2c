"""What this machine offers."""

import contextlib
import os


def cores() -> int:
    """How many CPU cores this process may use, as far as the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """Lets JAX use every CPU core as a device, so that seeds run side by side; has no effect once JAX has been used."""
    import jax

    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores())
