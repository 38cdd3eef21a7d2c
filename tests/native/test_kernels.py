"""Kernels compute what XLA computes: the C of the CPU as users run it, the CUDA C in warps made of threads."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpg import native
from fedpg.envs.base import Discrete
from fedpg.errors import UserError
from fedpg.gradients import tabular
from fedpg.gradients.hvp import hessian_vector
from fedpg.gradients.tabular import Visits
from fedpg.native import cpu, cuda
from fedpg.native.folder import name_of
from fedpg.policies import tabular as policies
from fedpg.sampling import uniform_pairs
from helpers.compare import assert_trees_close

HORIZON, DISCOUNT = 12, 0.9


def tables(states: int, actions: int, *lanes: int) -> tuple[Any, ...]:
    """Keys, starts, logits, transitions and rewards; the policies are the same along the last axis of lanes."""
    rng = np.random.default_rng(states)
    policy, kernel = rng.dirichlet(np.ones(actions), (*lanes[:-1], 1, states)), rng.dirichlet(np.ones(states), (*lanes, states, actions))
    words, start = rng.integers(0, 2**32, (*lanes, 2), np.uint32), rng.integers(0, states, lanes, np.int32)
    reward = rng.normal(size=(*lanes, states, actions))
    return words, start, *(x.astype(np.float32) for x in (np.log(policy), kernel, reward))


def run(platform: str, given: tuple[Any, ...], valued: bool, horizon: int = HORIZON) -> Any:
    """The sums of every lane; the policies enter without their last axis of lanes."""
    words, start, policy, kernel, reward = given
    one = functools.partial(native.visits, platform, horizon=horizon, discount=DISCOUNT, valued=valued)
    both = jax.vmap(jax.vmap(one, (0, 0, None, 0, 0)))
    return jax.tree.map(np.asarray, jax.jit(both)(words, start, policy[:, 0], kernel, reward))


def by_hand(given: tuple[Any, ...], valued: bool, lane: tuple[int, ...]) -> list[Any]:
    """The sums of one lane, by plain loops."""
    words, s, policy, kernel, reward = given[0][lane], int(given[1][lane]), np.exp(given[2][lane[0], 0]), given[3][lane], given[4][lane]
    drawn = [np.asarray(x) for x in uniform_pairs(jax.random.wrap_key_data(jnp.asarray(words)), HORIZON)]
    path = []
    for u, v in zip(*drawn, strict=True):
        a = int(np.searchsorted(np.cumsum(policy[s]), u * policy[s].sum(), side="right"))
        path.append((s, a, reward[s, a]))
        s = int(np.searchsorted(np.cumsum(kernel[s, a]), v * kernel[s, a].sum(), side="right"))
    visits, returns, discounts, targets = np.zeros((4, *reward.shape))
    for t, (s, a, _) in enumerate(path):
        visits[s, a] += 1
        returns[s, a] += sum(DISCOUNT**h * path[h][2] for h in range(t, HORIZON))
        discounts[s, a] += DISCOUNT**t
        targets[s, 0] += sum(DISCOUNT ** (h - t) * path[h][2] for h in range(t, HORIZON))
    total = sum(r for *_, r in path)
    return [visits, returns, total, discounts, targets[:, 0]] if valued else [visits, returns, total]


class Emulated(cuda.Kernel):
    """A CUDA kernel, compiled for the CPU with threads for lanes, behind the handler that XLA calls on a GPU."""

    def __init__(self, folder: Path, program: cuda.Program) -> None:
        super().__init__(program)
        text = f'#include "warps.h"\n{program.source()}\nextern "C" void run(const Job* job) {{ run_warps({program.name}, job); }}\n'
        command = ["c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", "-x", "c++", "-", f"-I{Path(__file__).parent}"]
        path = folder / f"{name_of(repr(program))}.so"
        command += [*program.macros, "-o", str(path)]
        subprocess.run(command, input=text, text=True, check=True)
        self._library = ctypes.CDLL(str(path))

    def _launch(self, frame: cuda.CallFrame) -> None:
        self._library.run(ctypes.byref(self.job(frame)))


MADE = {}
"""Emulated kernels by name: their handlers must not be collected."""


def emulate(folder: Path, program: cuda.Program) -> str:
    """The name under which XLA knows a kernel on the CPU."""
    name = "_".join(("emulated", program.name, *program.macros))
    if name not in MADE:
        MADE[name] = Emulated(folder, program)
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(MADE[name].handler), platform="cpu")
    return name


EMULATED = [(5, 5, False, True), (2, 3, True, False)]
SLOW = [(4, 4, True, True), (4, 2, False, True), (5, 4, False, False), (1, 1, False, True)]
EMULATED += [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW]


@pytest.mark.parametrize(("states", "actions", "valued", "shared"), EMULATED)
def test_cuda_source(states: int, actions: int, valued: bool, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole tile, a part of one, operands that lanes share, and the call through XLA."""
    name = emulate(tmp_path, cuda.visits(states, actions, valued, shared))
    platform = SimpleNamespace(target=lambda *shape: name, eager=lambda *shape: shared, SCRATCH=True)
    monkeypatch.setitem(native.PLATFORMS, "emulated", platform)
    given = tables(states, actions, 5, 9)
    found = run("emulated", given, valued)
    for lane in np.ndindex(5, 9):
        assert_trees_close([x[lane] for x in found], by_hand(given, valued, lane), rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(Emulated, "_launch", lambda self, frame: cuda.Kernel._launch(self, frame))
    with pytest.raises(jax.errors.JaxRuntimeError, match="XLA gave no stream"):  # a CPU has none; other errors go the same way
        run("emulated", given, valued)


def by_differentiating(logits: Any, coefficient: Any, behaviour: Any, count: Any, limit: float) -> tuple[jax.Array, jax.Array]:
    """What `weighted_score` computes, from its definition."""
    log_ratio = jnp.sum(count * (jax.nn.log_softmax(logits) - jax.nn.log_softmax(behaviour)))
    score = jax.grad(lambda at: jnp.sum(coefficient * jax.nn.log_softmax(at)))(logits)
    return jnp.exp(jnp.minimum(log_ratio, limit)) * score, log_ratio


@pytest.mark.parametrize(
    ("states", "actions"), [(5, 5), pytest.param(4, 3, marks=pytest.mark.slow), pytest.param(2, 1, marks=pytest.mark.slow)]
)
def test_scores(states: int, actions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies that lanes share, one policy per lane, tiles that begin anywhere in a table, weights below and at their limit."""
    names = [emulate(tmp_path, cuda.score(states, actions, weighted)) for weighted in (False, True)]
    monkeypatch.setitem(native.PLATFORMS, "emulated", SimpleNamespace(target=None, score_target=lambda s, a, weighted: names[weighted]))
    rng = np.random.default_rng(0)
    logits, *tables = (rng.normal(size=(*lanes, states, actions)).astype(np.float32) for lanes in ((101,), (2, 101), (2, 101), (2, 101)))
    limit = 0.5

    def on_all(one: Any) -> Any:
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(jax.vmap(one), (None, 0, 0, 0)))(logits, *tables))

    expected, ratios = on_all(functools.partial(by_differentiating, limit=limit))
    assert 0 < np.sum(ratios > limit) < ratios.size or actions == 1
    found = on_all(functools.partial(native.weighted_score, "emulated", limit=limit))
    assert_trees_close(found, (expected, ratios), rtol=1e-5, atol=1e-5)
    found = on_all(lambda logits, coefficient, behaviour, _: native.score("emulated", behaviour, coefficient))
    unweighted = on_all(lambda _, coefficient, behaviour, count: by_differentiating(behaviour, coefficient, behaviour, count, 0.0)[0])
    assert_trees_close(found, unweighted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("make", "kind", "cap"), [(policies.softmax, "trajectory", 2.0), (policies.direct, "truncated", 1.1)])
def test_gradients_in_kernels(make: Any, kind: str, cap: float, emulated_scores: Any) -> None:
    """As on a GPU, for params that are logits and others: g, F, the statistics of w, and the Hessian-vector product."""
    policy = make(SimpleNamespace(observation_space=Discrete(3), action_space=Discrete(2)))
    rng = np.random.default_rng(0)
    params, behaviour, vector = (
        {name: jnp.asarray(rng.uniform(0.3, 0.7, (3, 2)), jnp.float32) for name in policy.init(None)} for _ in range(3)
    )
    visits = Visits(*(jnp.asarray(rng.normal(size=(7, 1, 3, 2)), jnp.float32) for _ in range(2)), None)

    def one(visits: Visits) -> Any:
        def weighted(at: Any, behaviour: Any) -> Any:
            return tabular.weighted_gradient(policy, at, behaviour, visits, kind, cap)

        hessian = hessian_vector(lambda at, behaviour: weighted(at, behaviour)[0], params, vector)
        return tabular.gradient(policy, params, visits), weighted(params, behaviour), hessian

    expected = jax.jit(jax.vmap(one))(visits)
    calls = emulated_scores()
    assert_trees_close(jax.jit(jax.vmap(lambda visits: one(visits)))(visits), expected, rtol=1e-5, atol=1e-5)
    assert calls == [False, True]  # the Hessian-vector product is not among them


@pytest.fixture
def emulated_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What makes the emulated kernels those of a GPU that every program finds; it returns the list of calls, whether weighted."""

    def use() -> list[bool]:
        names = [emulate(tmp_path, cuda.score(3, 2, weighted)) for weighted in (False, True)]
        calls: list[bool] = []
        platform = SimpleNamespace(
            why_not=lambda: None, scores=lambda *shape: True, score_target=lambda s, a, w: calls.append(w) or names[w]
        )
        monkeypatch.setitem(native.PLATFORMS, "cuda", platform)
        monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cuda, default: cuda(*args))
        return calls

    return use


@pytest.mark.parametrize(("states", "actions", "valued"), [(3, 2, True), (6, 5, False)], ids=["rows made before", "rows made on the way"])
def test_c_source(states: int, actions: int, valued: bool) -> None:
    given = tables(states, actions, 3, 5)
    found = run("cpu", given, valued)
    for lane in np.ndindex(3, 5):
        assert_trees_close([x[lane] for x in found], by_hand(given, valued, lane), rtol=1e-5, atol=1e-5)


def test_lanes_do_not_depend_on_each_other() -> None:
    """Many lanes, on all threads, are to the last bit what each is with other neighbours."""
    given = tables(3, 2, 40, 11)
    whole, part = run("cpu", given, True), run("cpu", tuple(x[7:10, ::-1] for x in given), True)
    for x, y in zip(whole, part, strict=True):
        np.testing.assert_array_equal(x[7:10, ::-1], y)


def test_blocks_are_those_of_threefry() -> None:
    """Random123's known answer for key 0 and counter 0, and JAX's own generator elsewhere."""
    first, second = uniform_pairs(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)), 1)
    assert [float(first[0]), float(second[0])] == [0x6B2001 / 2**24, 0x99BA4E / 2**24]


def test_axes_are_joined_where_all_operands_allow_it() -> None:
    """Axes of length 1 go; an operand that is the same along an axis keeps it apart."""
    ranks = cuda.visits(5, 6, False, True).ranks
    shapes = [(4, 3, 1, 2), (4, 3, 1), (4, 3, 1, 5, 6), (4, 3, 1, 5, 6, 5), (4, 3, 1, 5, 6)]
    assert cuda.layout((4, 3, 1, 5, 6), shapes, ranks) == (12, [12], [[2], [1], [30], [150], [30]])
    shapes[4] = (4, 1, 1, 5, 6)
    assert cuda.layout((4, 3, 1, 5, 6), shapes, ranks) == (12, [4, 3], [[6, 2], [3, 1], [90, 30], [450, 150], [30, 0]])
    assert cuda.layout((5, 6), [(2,), (), (5, 6), (5, 6, 5), (5, 6)], ranks) == (1, [1], [[0]] * 5)


def test_blocks_fill_a_multiprocessor() -> None:
    """On an H200: 24,960 bytes a tile, nine tiles at a time, as blocks of three."""
    assert cuda.visits(5, 5, False, True).words == 195
    assert cuda.best_tiles(24_960, 232_448, 233_472, 1024) == 3


def test_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.why_not("cpu") is None
    assert native.applies("cpu", jnp.ones(2))
    assert not native.applies("cpu", np.ones(2))
    assert not native.applies("cpu", jnp.ones((65, 256)))
    monkeypatch.setenv(native.VARIABLE, "off")
    assert native.why_not("cpu") == "FEDPG_KERNELS=off"
    assert not native.applies("cpu", jnp.ones(2))
    monkeypatch.setenv(native.VARIABLE, "of")
    with pytest.raises(UserError, match="FEDPG_KERNELS"):
        native.applies("cpu", jnp.ones(2))


@pytest.fixture
def fresh_compiler() -> Any:
    for cached in (cached_ones := (cpu.compiler, cpu.why_not, cpu.library)):
        cached.cache_clear()
    yield
    for cached in cached_ones:
        cached.cache_clear()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(("compiler", "reason"), [("false", "false failed"), ("", "no C compiler")])
def test_xla_does_the_work_without_a_compiler(compiler: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    if not compiler:
        monkeypatch.setattr(cpu.shutil, "which", lambda name: None)
    assert reason in native.why_not("cpu")
    assert not native.applies("cpu", jnp.ones(2))


def test_refuses_operands_of_other_shapes() -> None:
    name = cpu.target(2, 2, False, True)
    results = [jax.ShapeDtypeStruct((3, 2), jnp.float32)] * 2 + [jax.ShapeDtypeStruct((), jnp.float32)]
    call = jax.ffi.ffi_call(name, results)
    with pytest.raises(jax.errors.JaxRuntimeError, match="unexpected operands"):
        call(np.zeros(2, np.uint32), np.int32(0), np.ones((2, 2), np.float32), np.ones((2, 2, 2), np.float32), np.ones((2, 2), np.float32),
             horizon=np.int64(3), discount=np.float32(1.0))  # fmt: skip
