"""The simulator over several devices and several processes gives what one device gives, and rounds take no memory."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpg.flower.processes import free_port

SPREAD = """
import json, sys
sys.path.insert(0, {tests!r})
import jax
if {processes} > 1:
    jax.distributed.initialize("127.0.0.1:{port}", {processes}, {process}, local_device_ids=list(range({devices})))
from test_simulate import GRID, SMALL, after, simulate
sim = simulate(SMALL[{world!r}](), settings=GRID, seeds=3)
state = after(sim)
numbers = jax.tree.leaves((sim.params(state), sim.evaluate(state), state.rows.info, state.rows.failed))
about = [jax.process_count(), len(jax.local_devices()), sim.programs.chunk, sim.programs.compilations]
if {processes} > 1:
    import pytest
    import fedpg
    with pytest.raises(fedpg.UserError, match="a run folder is written by one process: with jax.distributed, use fedpg.simulator"):
        fedpg.train(rounds=1, out="never written")
print(json.dumps([about, [x.tolist() for x in numbers]]))
"""


@functools.cache
def spread(world: str, processes: int, devices: int) -> list[tuple[list[Any], list[np.ndarray]]]:
    """What every process says of 9 rows: three settings of three seeds."""
    given = {"tests": str(Path(__file__).parent), "world": world, "processes": processes, "devices": devices, "port": free_port()}
    environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen([sys.executable, "-c", SPREAD.format(process=i, **given)], env=environment, stdout=subprocess.PIPE, text=True)
        for i in range(processes)
    ]
    said = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes
    found = [json.loads(text.splitlines()[-1]) for text in said]
    return [(about, [np.array(x) for x in numbers]) for about, numbers in found]


@pytest.mark.parametrize("world", ["bowl", "random-mdp"])
@pytest.mark.parametrize(
    ("processes", "devices", "chunk"),
    [
        pytest.param(1, 2, 10, id="two devices, and a copy fills up the second", marks=pytest.mark.slow),
        pytest.param(1, 8, 16, id="eight devices"),
        pytest.param(2, 1, 5, id="two processes, and a copy fills up the second"),
        pytest.param(2, 2, 6, id="two processes with two devices each", marks=pytest.mark.slow),
    ],
)
def test_rows_are_spread_without_changing_them(processes: int, devices: int, chunk: int, world: str) -> None:
    ((_, alone),) = spread(world, 1, 1)
    found = spread(world, processes, devices)
    for about, numbers in found:
        assert about == [processes, devices, chunk, {"blank": 0, "start": 1, "run": 1, "evaluate": 1, "params": 1}]
        assert len(numbers) == len(alone)
        for one, other in zip(numbers, alone, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for one, other in zip(found[0][1], found[-1][1], strict=True):  # every process has the rows of all of them
        np.testing.assert_array_equal(one, other)


ROUNDS = """
import resource, sys
sys.path.insert(0, {tests!r})
from test_simulate import SMALL, after, simulate
sim = simulate(SMALL["random-mdp"](), seeds=2)
peaks = []
for rounds in (10, 20_000):
    after(sim, rounds).rows.failed.block_until_ready()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[1] - peaks[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is in kilobytes on Linux")
def test_memory_does_not_grow_with_rounds() -> None:
    """Twenty thousand rounds take less than 4 MB more than ten: 0.2 kB a round, less than the params of one seed."""
    code = ROUNDS.format(tests=str(Path(__file__).parent))
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(shown) < 4096, shown
