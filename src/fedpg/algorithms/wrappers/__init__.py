"""Wrappers: changes that work around any algorithm, composed by `chain`.

    chain(algorithm, robust("median"), private(clip=1.0, noise=2.0), compressed("top-k", keep=0.1))

Every wrapper takes and returns an `Algorithm`, so the result runs wherever the algorithm does. The order, from the inside (close to
the algorithm) to the outside (close to the network), is fixed:

    robust               the server half must see decoded, attacked messages, and compute the robust mean last
    attack               attackers change what their agent half would send, so what follows treats them like other agents
    observation_scaling  moments of observations are merged, not averaged: robust means and attacks must not touch them
    private              clips and noises what leaves the algorithm, before any other party or wrapper sees it
    compressed           encodes what is really sent; noise on an encoded message would not be differentially private

Private messages cannot carry moments of observations, which would reveal data: `private` and `observation_scaling` exclude each other.
"""

from fedpg.algorithms.base import Algorithm
from fedpg.algorithms.wrappers.attack import attack
from fedpg.algorithms.wrappers.base import Wrapper
from fedpg.algorithms.wrappers.compression import compressed
from fedpg.algorithms.wrappers.observation_scaling import observation_scaling
from fedpg.algorithms.wrappers.privacy import private
from fedpg.algorithms.wrappers.robust import robust
from fedpg.errors import require

__all__ = ["ORDER", "Wrapper", "attack", "chain", "compressed", "observation_scaling", "private", "robust"]

ORDER = ("robust", "attack", "observation_scaling", "private", "compressed")
"""The names of the wrappers from inside to outside."""


def chain(algorithm: Algorithm, *wrappers: Wrapper) -> Algorithm:
    """Wraps an algorithm; the first wrapper is the innermost.

    Args:
        algorithm: what is wrapped.
        wrappers: in the order robust, attack, observation_scaling, private, compressed, each at most once. The order is checked;
            `fedpg.algorithms.wrappers` explains it.

    >>> chain(None, private(clip=1.0), robust("median"))
    Traceback (most recent call last):
        ...
    fedpg.errors.UserError: wrappers must be in the order robust, attack, observation_scaling, private, compressed, each at most once, \
not private, robust
    """
    active = [wrapper for wrapper in wrappers if wrapper.wrap is not None]
    names = [wrapper.name for wrapper in active]
    ordered = names == sorted(set(names), key=ORDER.index)
    require(ordered, f"wrappers must be in the order {', '.join(ORDER)}, each at most once, not {', '.join(names)}")
    hint = "give --normalise-observations off, or leave out --clip and --noise"
    require(not {"observation_scaling", "private"} <= set(names), f"the moments of observations would be sent without noise: {hint}")
    for wrapper in active:
        algorithm = wrapper.wrap(algorithm)
    return algorithm
