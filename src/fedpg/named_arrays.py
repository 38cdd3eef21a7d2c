"""Pytrees as named arrays, and back: the content of checkpoints and packets."""

from typing import Any

import jax
import numpy as np

from fedpg.errors import require
from fedpg.trees import Tree


def _named(tree: Tree) -> dict[str, Any]:
    """Every leaf under its path, as in `server.shared.params['logits']`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}


def flatten(tree: Tree) -> dict[str, np.ndarray]:
    """Every leaf as a NumPy array, under its path."""
    return {name: np.asarray(leaf, order="C") for name, leaf in _named(tree).items()}


def shapes(tree: Tree) -> dict[str, jax.ShapeDtypeStruct]:
    """The type and shape of every leaf, under its path; leaves may be arrays or shapes."""
    return {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in _named(tree).items()}


def unflatten(template: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """The tree with the structure of `template` (arrays or shapes) whose leaves are `arrays`.

    Raises:
        UserError: if a name, shape or type does not match.
    """
    expected = shapes(template)
    odd = sorted(set(expected) ^ set(arrays))
    require(not odd, f"the arrays do not fit this run: {', '.join(odd[:3])} on one side only")
    for name, leaf in expected.items():
        found = arrays[name]
        same = leaf.shape == found.shape and leaf.dtype == found.dtype
        require(same, f"the array {name} is {found.dtype}{list(found.shape)}, expected {leaf.dtype}{list(leaf.shape)}")
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in expected])
