"""FedHAPG-M's Hessian-vector product.

    Lambda = <grad log p(tau|th), v> g(tau|th) + grad <g(tau|th), v>      with tau ~ th

is the derivative of F(th' ; tau, th) at th' = th along v: one `jax.jvp`, no Hessian, no finite difference.
"""

from collections.abc import Callable

import jax

from fedpg.trees import Params


def hessian_vector(weighted_gradient: Callable[[Params, Params], Params], params: Params, vector: Params) -> Params:
    """Lambda of a sample drawn at `params`: an unbiased estimate of (grad^2 J_i(params)) vector.

    Args:
        weighted_gradient: (params, behaviour) -> F(params; sample, behaviour).
        params: where the sample was drawn.
        vector: v, like params.
    """
    return jax.jvp(lambda at: weighted_gradient(at, params), (params,), (vector,))[1]
