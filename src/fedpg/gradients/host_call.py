"""Calls out of a compiled program into Python, on arrays as they are.

`jax.pure_callback` turns every argument into a JAX array first, which takes longer than a step of many environments.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

_host_call_p = Primitive("host_call")
_host_call_p.multiple_results = True


def host_call(function: Callable[..., Any], results: Any, *args: jax.Array) -> Any:
    """function(*args) in Python, on NumPy arrays; `vmap` around it adds leading axes to all arguments and results.

    Args:
        function: pure as far as the program is concerned: calls may be left out or repeated.
        results: shapes and types of what it returns, without these axes.
        args: its arguments.
    """
    flat, structure = jax.tree.flatten(results)

    def call(*args: Any) -> tuple[np.ndarray, ...]:
        # The program's memory, which it uses again after the call.
        found = jax.tree.leaves(function(*(np.array(x) for x in args)))
        return tuple(np.ascontiguousarray(x) for x in found)

    return jax.tree.unflatten(structure, _host_call_p.bind(*args, call=call, results=tuple((x.shape, x.dtype) for x in flat), added=()))


def _more_axes(args: Any, axes: Any, *, call: Any, results: Any, added: tuple[int, ...]) -> tuple[list[jax.Array], list[int]]:
    size = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(args, axes, strict=True)
    ]
    found = _host_call_p.bind(*moved, call=call, results=results, added=(size, *added))
    return found, [0] * len(found)


def _lower(ctx: Any, *args: Any, call: Any, results: Any, added: tuple[int, ...]) -> Any:
    found, _, _ = mlir.emit_python_callback(ctx, call, None, list(args), ctx.avals_in, ctx.avals_out, has_side_effect=False)
    return found


_host_call_p.def_impl(lambda *args, call, **_: [jnp.asarray(x) for x in call(*args)])
_host_call_p.def_abstract_eval(lambda *args, call, results, added: [ShapedArray((*added, *shape), dtype) for shape, dtype in results])
batching.primitive_batchers[_host_call_p] = _more_axes
mlir.register_lowering(_host_call_p, _lower)
