"""Pytrees as named arrays, and back: what a checkpoint holds and what crosses the wire."""

import jax
import numpy as np

from fedpg.errors import require
from fedpg.trees import Tree


def flatten(tree: Tree) -> dict[str, np.ndarray]:
    """Every leaf under its path, as in `server.shared.params['logits']`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): np.asarray(leaf, order="C") for path, leaf in leaves}


def shapes(tree: Tree) -> dict[str, jax.ShapeDtypeStruct]:
    """The type and shape of every leaf under its path; leaves may be arrays or shapes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for path, leaf in leaves}


def unflatten(template: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """The tree shaped like `template` (arrays or shapes) whose leaves are `arrays`.

    Raises:
        UserError: if a name, shape or type does not match.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in leaves]
    odd = sorted(set(names) ^ set(arrays))
    require(not odd, f"the arrays do not fit this run: {', '.join(odd[:3])} on one side only")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        found = arrays[name]
        same = tuple(leaf.shape) == found.shape and np.dtype(leaf.dtype) == found.dtype
        require(same, f"the array {name} is {found.dtype}{list(found.shape)} where {leaf.dtype}{list(leaf.shape)} belongs")
    return jax.tree.unflatten(structure, [arrays[name] for name in names])
