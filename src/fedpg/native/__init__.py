"""Hand-written kernels for finite MDPs: C on a CPU, CUDA on an NVIDIA GPU, both called from inside compiled programs.

`visits` computes what `fedpg.gradients.tabular` otherwise computes in XLA, from the same random numbers: the same visits, up to the
rounding of probabilities. `score` and `weighted_score`, on a GPU only, compute what becomes of them: gradients, which XLA would take
several passes over memory for. A kernel is compiled for one shape of tables when it is first needed, which takes less than a second, and
kept in the user's cache folder:

- on a CPU by the C compiler of the machine (`$CC`, cc, gcc or clang), if there is one;
- on a GPU by NVRTC, which comes with `jax[cuda13]` and `jax[cuda12]`.

Where neither is found, or with FEDPG_KERNELS=off, XLA does the work.
"""

import os
import threading

import jax
import jax.numpy as jnp
import numpy as np

from fedpg.errors import choose
from fedpg.native import cpu, cuda

VARIABLE = "FEDPG_KERNELS"
"""Environment variable: `off` leaves everything to XLA."""
MOST_CELLS = 2**14
"""States times actions of the largest kernel: sums of one trajectory must fit on the stack of a thread."""
MAKING = threading.Lock()
"""Held while a kernel is compiled and named for XLA: programs that need the same one may be traced in several threads."""
PLATFORMS = {"cpu": cpu, "cuda": cuda}
"""Where there are kernels. Each module says `why_not`, and has `target`, which makes the kernel of a shape and names it for XLA."""


def wanted() -> bool:
    """Whether kernels may be used: they are not switched off."""
    return choose(VARIABLE, os.environ.get(VARIABLE, "auto"), ("auto", "off")) == "auto"


def why_not(platform: str) -> str | None:
    """Why there are no kernels on a platform; None if there are."""
    if not wanted():
        return f"{VARIABLE}=off"
    return PLATFORMS[platform].why_not()


def applies(platform: str, *tables: jax.Array) -> bool:
    """Whether a kernel can be used on a platform for these tables, the last of them (S, A)."""
    return why_not(platform) is None and tables[-1].size <= MOST_CELLS and all(x.dtype == jnp.float32 for x in tables)


def visits(
    platform: str, key: jax.Array, start: jax.Array, logits: jax.Array, transition: jax.Array, reward: jax.Array, *,
    horizon: int, discount: float, valued: bool,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """The sums over one trajectory: visits, returns, total return and, if `valued`, discounts and targets.

    Args:
        platform: "cpu" or "cuda".
        key: two words, see `sampling.uniform_pairs`, (2,).
        start: the first state, ().
        logits: log pi(a|s) up to a constant in every state, (S, A).
        transition: P(s'|s,a), (S, A, S).
        reward: (S, A).
        horizon, discount: H and gamma.
        valued: whether to compute `discounts` and `targets`.
    """
    states, actions = reward.shape
    shape = (states, actions, valued)
    eager = PLATFORMS[platform].eager(*shape, horizon)
    policy = logits if eager else jax.nn.softmax(logits)
    number, table = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((states, actions), jnp.float32)
    results = [table, table, number] + ([table, jax.ShapeDtypeStruct((states,), jnp.float32)] if valued else [])
    if valued and PLATFORMS[platform].SCRATCH:
        results.append(jax.ShapeDtypeStruct((horizon,), jnp.uint16))  # working memory: the cells visited
    with MAKING:
        target = PLATFORMS[platform].target(*shape, eager)
    call = jax.ffi.ffi_call(target, results, vmap_method="expand_dims")
    found = call(key, start.astype(jnp.int32), policy, transition, reward, horizon=np.int64(horizon), discount=np.float32(discount))
    return tuple(found[: 5 if valued else 3])


def score(platform: str, logits: jax.Array, coefficient: jax.Array) -> jax.Array:
    """The gradient of sum_{s,a} coefficient[s,a] log pi(a|s), pi = softmax(logits), in the logits; all are (S, A). `platform`: "cuda"."""
    return _score(platform, logits, coefficient)[0]


def weighted_score(
    platform: str, logits: jax.Array, coefficient: jax.Array, behaviour: jax.Array, count: jax.Array, limit: float
) -> tuple[jax.Array, jax.Array]:
    """`score` times w = e^min(log ratio, limit), and the log ratio, (): sum_{s,a} count[s,a] (log pi(a|s) - log mu(a|s)).

    `behaviour` are the logits of mu.
    """
    return tuple(_score(platform, logits, coefficient, behaviour, count, limit=np.float32(limit)))


def scores(platform: str, weighted: bool, *tables: jax.Array) -> bool:
    """Whether `score`, or if `weighted` `weighted_score`, can be used on a platform for these tables."""
    return applies(platform, *tables) and PLATFORMS[platform].scores(*tables[-1].shape, weighted)


def _score(platform: str, *tables: jax.Array, **limit: np.float32) -> list[jax.Array]:
    results = [jax.ShapeDtypeStruct(tables[0].shape, jnp.float32), jax.ShapeDtypeStruct((), jnp.float32)][: 2 if limit else 1]
    with MAKING:
        target = PLATFORMS[platform].score_target(*tables[0].shape, bool(limit))
    return jax.ffi.ffi_call(target, results, vmap_method="expand_dims")(*tables, **limit)
