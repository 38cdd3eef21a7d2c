"""FedHAPG-M's Hessian-vector product.

    Lambda = <grad log p(tau|th), v> g(tau|th) + grad <g(tau|th), v>      with tau ~ th

is the derivative of F(th' ; tau, th) at th' = th along v: one `jax.jvp`, O(H d), no Hessian, no finite difference.
"""

from __future__ import annotations

import jax

from fedpg.gradients.batch import Batch, weighted_gradient
from fedpg.policies.base import Policy
from fedpg.trees import Params


def hessian_vector(
    policy: Policy, params: Params, vector: Params, batch: Batch, discount: float, kind: str = "trajectory", cap: float = 2.0
) -> Params:
    """Mean of Lambda over a batch sampled at `params`: an unbiased estimate of (grad^2 J_i(params)) vector."""

    def weighted(at: Params) -> Params:
        return weighted_gradient(policy, at, params, batch, discount, kind, cap)[0]

    return jax.jvp(weighted, (params,), (vector,))[1]
