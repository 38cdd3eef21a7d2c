"""What `fedpg bench tabular` compares with: PAvg on random MDPs, written by hand for one machine, and in JAX as one first writes it."""

import ctypes
import functools
import math
import subprocess
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_int64, c_uint, c_void_p
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.machine import cores
from fedpg.native import cpu, cuda, why_not
from fedpg.native.folder import kept, name_of

STATES = ACTIONS = 5
DISCOUNT, LOCAL_LR = 0.9, 0.01
SOURCES = Path(__file__).parent


def macros(local_steps: int, horizon: int) -> list[str]:
    """The options that choose the sizes of scalar.c and bare.cu."""
    return [f"-DSTATES={STATES}", f"-DACTIONS={ACTIONS}", f"-DLOCAL_STEPS={local_steps}", f"-DHORIZON={horizon}"]


def tables(lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Random transitions (lanes, S, A, S) and rewards (lanes, S, A)."""
    rng = np.random.default_rng(0)
    kernel = rng.random((lanes, STATES, ACTIONS, STATES), np.float32)
    return kernel / kernel.sum(-1, keepdims=True), rng.random((lanes, STATES, ACTIONS), np.float32)


def peers(lanes: int, local_steps: int, horizon: int) -> dict[str, Callable[[], float]]:
    """The peers that this machine can run: name -> a measurement of environment steps a second."""
    steps, found = lanes * local_steps * horizon, {"vmap(scan) in JAX": plain(min(lanes, 20_000), local_steps, horizon)}
    if jax.default_backend() == "gpu" and why_not("cuda") is None:
        found["a CUDA kernel for PAvg"] = timed(bare(lanes, local_steps, horizon), steps)
    elif jax.default_backend() == "cpu" and cpu.compiler():
        found["scalar C for PAvg, all cores"] = timed(scalar(lanes, local_steps, horizon), steps)
    return found


def timed(run: Callable[[], Any], steps: int) -> Callable[[], float]:
    """Steps a second of about half a second of calls."""
    run()
    began = time.perf_counter()
    run()
    calls = math.ceil(0.5 / max(time.perf_counter() - began, 1e-4))

    def rate() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            run()
        return calls * steps / (time.perf_counter() - began)

    return rate


def scalar(lanes: int, local_steps: int, horizon: int, params: np.ndarray | None = None) -> Callable[[], Any]:
    """Local updates in scalar C on all cores, which change `params`, (lanes, S, A)."""
    source = (SOURCES / "scalar.c").read_text()
    flags = [*cpu.compiler(), *cpu.FLAGS, "-pthread", *macros(local_steps, horizon)]

    def compile(output: Path) -> None:
        subprocess.run([*flags, "-x", "c", "-", "-lm", "-o", str(output)], input=source, text=True, check=True, capture_output=True)

    library = ctypes.CDLL(str(kept(f"scalar_{name_of(source, *flags)}.so", compile)))
    arrays = *tables(lanes), np.zeros((lanes, STATES, ACTIONS), np.float32) if params is None else params

    def run() -> None:
        pointers = (x.ctypes.data_as(c_void_p) for x in arrays)
        library.scalar(*pointers, c_float(LOCAL_LR), c_float(DISCOUNT), c_int64(lanes), c_int(cores()))

    return run


def bare(lanes: int, local_steps: int, horizon: int) -> Callable[[], Any]:
    """Local updates in one CUDA kernel, one warp to a block."""
    context, module, function = c_void_p(), c_void_p(), c_void_p()
    cuda._call("cuDevicePrimaryCtxRetain", byref(context), 0)
    cuda._call("cuCtxPushCurrent_v2", context)
    options = [f"--gpu-architecture={cuda._architecture(0)}", *macros(local_steps, horizon)]
    cuda._call("cuModuleLoadData", byref(module), cuda.compile_to("CUBIN", (SOURCES / "bare.cu").read_text(), *options))
    cuda._call("cuModuleGetFunction", byref(function), module, b"bare")
    cuda._call("cuCtxPopCurrent_v2", byref(c_void_p()))
    shared = 4 * cuda.TILE * STATES * ACTIONS * (5 + STATES)
    arrays = *map(jnp.asarray, tables(lanes)), jnp.zeros((lanes, STATES, ACTIONS)), jnp.ones((lanes, STATES, ACTIONS))
    jax.block_until_ready(arrays)

    def run() -> None:
        args = [c_void_p(x.unsafe_buffer_pointer()) for x in arrays] + [c_float(LOCAL_LR), c_float(DISCOUNT), c_uint(lanes), c_uint(1)]
        pointers = (c_void_p * len(args))(*map(ctypes.addressof, args))
        cuda._call("cuCtxPushCurrent_v2", context)
        cuda._call("cuLaunchKernel", function, -(-lanes // cuda.TILE), 1, 1, cuda.TILE, 1, 1, c_uint(shared), None, pointers, None)
        cuda._call("cuCtxSynchronize")
        cuda._call("cuCtxPopCurrent_v2", byref(c_void_p()))

    return run


def plain(lanes: int, local_steps: int, horizon: int) -> Callable[[], float]:
    """Local updates in JAX: trajectories by scan, gradients by differentiating log-probabilities, lanes by vmap."""

    def trajectory(key: jax.Array, logits: jax.Array, kernel: jax.Array, reward: jax.Array) -> Any:
        def step(state: jax.Array, key: jax.Array) -> Any:
            first, second = jax.random.split(key)
            action = jax.random.categorical(first, logits[state])
            after = jax.random.categorical(second, jnp.log(kernel[state, action]))
            return after, (state, action, reward[state, action])

        return jax.lax.scan(step, jax.random.randint(key, (), 0, STATES), jax.random.split(key, horizon))[1]

    def update(key: jax.Array, logits: jax.Array, kernel: jax.Array, reward: jax.Array) -> jax.Array:
        def local_step(logits: jax.Array, key: jax.Array) -> Any:
            s, a, r = trajectory(key, logits, kernel, reward)
            to_go = jnp.cumsum((r * DISCOUNT ** jnp.arange(horizon))[::-1])[::-1]
            return logits + LOCAL_LR * jax.grad(lambda at: jnp.sum(to_go * jax.nn.log_softmax(at)[s, a]))(logits), None

        return jax.lax.scan(local_step, logits, jax.random.split(key, local_steps))[0]

    kernel, reward = map(jnp.asarray, tables(lanes))
    run = functools.partial(jax.jit(jax.vmap(update)), jax.random.split(jax.random.key(0), lanes), jnp.zeros_like(reward), kernel, reward)
    return timed(lambda: jax.block_until_ready(run()), lanes * local_steps * horizon)
