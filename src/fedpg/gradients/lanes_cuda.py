"""Rollouts and gradients of many lanes as CUDA kernels: every thread runs one lane from its first step to its last.

Arguments and results are those of `fedpg.gradients.lanes_xla`. The kernels are compiled for the sizes of a network; the step of the task
is translated to C from what JAX traces.
"""

import ctypes
import functools
import math
import threading
from ctypes import Structure, byref, c_int, c_int32, c_void_p
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from fedpg import native
from fedpg.envs.base import Advance
from fedpg.native import cuda
from fedpg.native.folder import name_of
from fedpg.policies.scaled import FURTHEST

VARIANTS = {"rollout": (64, 0), "score": (64, 1), "log_probs": (64, 0)}
"""Lanes of a block, and whether params are in shared memory."""
SOURCE = Path(__file__).with_name("lanes.cu")

UNARY = {"sin": "sinf", "cos": "cosf", "tan": "tanf", "tanh": "tanhf", "exp": "expf", "log": "logf", "sqrt": "sqrtf", "abs": "fabsf",
         "neg": "-", "not": "!", "floor": "floorf", "ceil": "ceilf"}  # fmt: skip
BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=", "or": "|",
          "and": "&"}  # fmt: skip
CALLS = {"max": "fmaxf", "min": "fminf", "pow": "powf", "atan2": "atan2f"}
TYPES = {"float32": "float", "int32": "int", "bool": "bool"}


class Untranslatable(Exception):
    """A function uses something that has no translation to C here."""


def to_c(function: Any, names: list[tuple[str, str]], results: list[str]) -> str:
    """The statements in C that compute `function` of scalars.

    Args:
        function: of scalars, in arithmetic only.
        names: what its arguments are called, and their types in JAX.
        results: what to assign its results to.
    """
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct((), dtype) for _, dtype in names))
    lines: list[str] = []
    count = iter(range(10**6))

    def translate(jaxpr: Any, constants: Any, given: list[str]) -> list[str]:
        known = dict(zip(jaxpr.invars, given, strict=True)) | {v: _literal(c) for v, c in zip(jaxpr.constvars, constants, strict=True)}

        def text(x: Any) -> str:
            return _literal(x.val) if hasattr(x, "val") else known[x]

        for equation in jaxpr.eqns:
            name, args = equation.primitive.name, [text(x) for x in equation.invars]
            inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
            if inner is not None:
                found = translate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), args)
                known.update(zip(equation.outvars, found, strict=True))
                continue
            (result,) = equation.outvars
            if result.aval.shape != () or result.aval.dtype.name not in TYPES:
                raise Untranslatable(f"{name} of {result.aval}")
            kind = TYPES[result.aval.dtype.name]
            variable = f"v{next(count)}"
            lines.append(f"const {kind} {variable} = {_expression(name, args, equation.params, kind)};")
            known[result] = variable
        return [text(x) for x in jaxpr.outvars]

    found = translate(closed.jaxpr, closed.consts, [name for name, _ in names])
    return "\n".join([*lines, *(f"{name} = {value};" for name, value in zip(results, found, strict=True))])


def _literal(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return str(value).lower()
    return f"({value})" if isinstance(value, int) else f"({float(value).hex()}f)" if math.isfinite(value) else f"(float)({value}f)"


def _expression(name: str, args: list[str], params: dict[str, Any], kind: str) -> str:
    if name in UNARY:
        return f"{UNARY[name]}({args[0]})"
    if name in BINARY:
        return f"({args[0]} {BINARY[name]} {args[1]})"
    if name in CALLS and kind == "float":
        return f"{CALLS[name]}({args[0]}, {args[1]})"
    if name == "select_n" and len(args) == 3:
        return f"({args[0]} ? {args[2]} : {args[1]})"
    if name == "integer_pow" and 1 <= params["y"] <= 4:
        return "(" + " * ".join(args * params["y"]) + ")"
    if name == "square":
        return f"({args[0]} * {args[0]})"
    if name == "convert_element_type":
        return f"({kind})({args[0]})"
    if name in ("stop_gradient", "copy", "broadcast_in_dim", "squeeze", "reshape"):
        return args[0]
    raise Untranslatable(name)


def step_in_c(advance: Advance, size: int, agent: Any) -> str:
    """The step of a task as a function in C; `agent` has scalars for leaves."""
    leaves, structure = jax.tree.flatten(agent)

    def flat(*args: Any) -> list[Any]:
        state, reward, terminated = advance(tuple(args[:size]), args[size], jax.tree.unflatten(structure, args[size + 1 :]))
        return [*state, reward, terminated]

    names = [(f"state[{i}]", "float32") for i in range(size)] + [("action", "int32")]
    names += [(f"agent[{i}]", "float32") for i in range(len(leaves))]
    body = to_c(flat, names, [*(f"after[{i}]" for i in range(size)), "*reward", "*ended"])
    head = "const float* state, int action, const float* agent, float* after, float* reward, bool* ended"
    return f"#define TASK\n#define AGENT {len(leaves)}\n__device__ __forceinline__ void step({head}) {{\n{body}\n}}\n"


class Job(Structure):
    """The parameters of the kernels, as in lanes.cu."""

    _fields_ = [("given", c_void_p * 4), ("results", c_void_p * 4), ("lanes", c_int), ("horizon", c_int)]


class Kernel:
    """One of the kernels, loaded on every device that asks for it, and its handler."""

    def __init__(self, name: str, source: str, options: tuple[str, ...]) -> None:
        self._name, self._source, self._options = name, source, options
        self._loaded: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.handler = cuda.HANDLER(self._handle)

    def _handle(self, pointer: Any) -> int | None:
        frame = pointer.contents
        if frame.more:
            extension = cuda.Extension.from_address(frame.more)
            if extension.type == cuda.METADATA:
                metadata = extension.metadata.contents
                metadata.version = cuda.Version(ctypes.sizeof(cuda.Version), None, *cuda._api()[0])
                metadata.traits = 0
                return None
        try:
            self._launch(frame)
        except Exception as error:  # what a handler raises would be lost
            args = cuda.ErrorCreate(ctypes.sizeof(cuda.ErrorCreate), None, f"fedpg {self._name}: {error}".encode(), cuda.INTERNAL)
            return cuda._api_function(frame, "XLA_FFI_Error_Create")(ctypes.addressof(args))
        return None

    def _launch(self, frame: Any) -> None:
        stream = cuda.StreamGet(ctypes.sizeof(cuda.StreamGet), None, frame.context, None)
        if cuda._api_function(frame, "XLA_FFI_Stream_Get")(ctypes.addressof(stream)):
            raise cuda.KernelError("XLA gave no stream")
        given = [frame.arguments.values[k].contents for k in range(frame.arguments.count)]
        results = [frame.results.values[k].contents for k in range(frame.results.count)]
        horizon, lanes = given[1].dims[0], given[1].dims[given[1].rank - 1]
        job = Job(lanes=lanes, horizon=horizon)
        for k, each in enumerate(given):
            job.given[k] = each.data
        for k, each in enumerate(results):
            job.results[k] = each.data
        context = c_void_p()
        cuda._call("cuStreamGetCtx", c_void_p(stream.stream), byref(context))
        cuda._call("cuCtxPushCurrent_v2", context)
        try:
            parameters = (c_void_p * 1)(ctypes.addressof(job))
            threads = int(self._options[3].split("=")[1])
            blocks, function = -(-lanes // threads), self._function(context.value)
            cuda._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, c_void_p(stream.stream), parameters, None)
        finally:
            cuda._call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def _function(self, context: int) -> Any:
        if context not in self._loaded:
            with self._lock:
                device, module, function = c_int32(), c_void_p(), c_void_p()
                cuda._call("cuCtxGetDevice", byref(device))
                code = _code(self._source, self._options, cuda._architecture(device.value))
                cuda._call("cuModuleLoadData", byref(module), code)
                cuda._call("cuModuleGetFunction", byref(function), module, self._name.encode())
                self._loaded[context] = function
        return self._loaded[context]


@functools.cache
def _code(source: str, options: tuple[str, ...], architecture: str) -> bytes:
    return cuda.compile_to("CUBIN", source, f"--gpu-architecture={architecture}", "--fmad=true", *options)


_KEPT: dict[str, Kernel] = {}


def _target(name: str, source: str, options: tuple[str, ...]) -> str:
    known = f"fedpg_lanes_{name}_{name_of(name, source, *options)}"
    with native.MAKING:
        if known not in _KEPT:
            _KEPT[known] = kernel = Kernel(name, source, options)
            jax.ffi.register_ffi_target(known, jax.ffi.pycapsule(kernel.handler), platform="CUDA")
    return known


def _options(name: str, layers: Any, scale: Any) -> tuple[str, ...]:
    sizes = ",".join(str(len(matrix)) for matrix, _ in layers) + f",{len(layers[-1][1])}"
    return (
        f"-DSIZES={sizes}",
        f"-DSCALED={int(bool(scale))}",
        f"-DFURTHEST={FURTHEST}f",
        f"-DTHREADS={VARIANTS[name][0]}",
        f"-DSHARED={VARIANTS[name][1]}",
    )


def _packed(tree: Any) -> jax.Array:
    """The entries of all leaves (..., L) below each other, (n, L)."""
    return jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in jax.tree.leaves(tree)])


def rollout(layers: Any, scale: Any, agent: Any, start: jax.Array, uniform: jax.Array, *, advance: Advance) -> tuple[jax.Array, ...]:
    """One trajectory in every lane, see `lanes_xla.rollout`."""
    (size, lanes), horizon, real = start.shape, len(uniform), start.dtype
    source = step_in_c(advance, size, agent) + SOURCE.read_text()
    shapes = ((horizon, size, lanes), real), ((horizon, lanes), jnp.int32), ((horizon, lanes), real), ((horizon, lanes), real)
    call = jax.ffi.ffi_call(_target("rollout", source, _options("rollout", layers, scale)), [jax.ShapeDtypeStruct(*x) for x in shapes])
    return tuple(call(_packed((layers, scale, agent, start)), uniform))


def score(layers: Any, scale: Any, observation: jax.Array, action: jax.Array, coefficient: jax.Array) -> tuple[Any, jax.Array]:
    """sum_t coefficient_t grad log pi(a_t|s_t) of every lane, and log pi(a_t|s_t), see `lanes_xla.score`."""
    packed = _packed(layers)
    results = [jax.ShapeDtypeStruct(packed.shape, packed.dtype), jax.ShapeDtypeStruct(action.shape, packed.dtype)]
    call = jax.ffi.ffi_call(_target("score", SOURCE.read_text(), _options("score", layers, scale)), results)
    direction, found = call(_packed((layers, scale)), observation, action, coefficient)
    leaves, structure = jax.tree.flatten(layers)
    parts, first = [], 0
    for leaf in leaves:
        count = math.prod(leaf.shape[:-1])
        parts.append(direction[first : first + count].reshape(leaf.shape))
        first += count
    return jax.tree.unflatten(structure, parts), found


def log_probs(layers: Any, scale: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    """log pi(a_t|s_t) of every lane, see `lanes_xla.log_probs`."""
    result = jax.ShapeDtypeStruct(action.shape, observation.dtype)
    call = jax.ffi.ffi_call(_target("log_probs", SOURCE.read_text(), _options("log_probs", layers, scale)), result)
    return call(_packed((layers, scale)), observation, action)
