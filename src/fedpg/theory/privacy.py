"""What T noised messages of an agent give away: the exact accountant of the Gaussian mechanism.

An agent sends T messages, each f + N(0, sigma^2 I) with |f| <= C and sigma = noise C (`fedpg.algorithms.wrappers.privacy`). Let the agent's
whole data, its environment and all it ever drew from it, be replaced by any others: f moves by at most 2C (the sensitivity),
also if it depends on everything that was sent before. Telling the two apart is then at most as easy as N(0, 1) from N(mu, 1),

    mu = 2 sqrt(T) / noise

(mu-GDP; Dong, Roth, Su, "Gaussian differential privacy", 2022), and the federation is (epsilon, delta)-differentially private for
this agent exactly if

    delta >= delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)

(Balle, Wang, "Improving the Gaussian mechanism", 2018). T counts the messages that the agent really sent. Nothing is claimed for
rounds in which it happened not to take part: the server knows who did.

For numbers: with x = epsilon/mu - mu/2 and M(x) = Phi(-x)/phi(x) (Mills' ratio), e^epsilon phi(x + mu) = phi(x), so that

    delta(epsilon) = phi(x) (M(x) - M(x + mu)),

without the product of a huge and a tiny number.
"""

import math

from fedpg.errors import require

ROOT = math.sqrt(2.0 * math.pi)
HALVINGS = 200
"""More than it takes to halve any interval of floats until its ends are neighbours."""


def separation(noise: float, messages: int) -> float:
    """mu, of `messages` messages with noise of standard deviation noise times the clipping norm.

    >>> separation(8.0, 16)
    1.0
    """
    require(0.0 < noise < math.inf, f"noise must be positive and finite, not {noise}: without it nothing is private")
    require(messages >= 0, f"messages must be 0 or more, not {messages}")
    return 2.0 * math.sqrt(messages) / noise


def _mills(x: float) -> float:
    from scipy.special import erfcx  # a third of the time that all other imports of a run take

    return math.sqrt(math.pi / 2.0) * float(erfcx(x / math.sqrt(2.0)))


def _log_delta(x: float, mu: float) -> float:
    """log delta(epsilon) where epsilon = mu x + mu^2 / 2."""
    if x < 0:  # M(x) may overflow, but delta is of the size of its first term
        found = 0.5 * math.erfc(x / math.sqrt(2.0)) - math.exp(-x * x / 2.0) / ROOT * _mills(x + mu)
        return math.log(found) if found > 0 else -math.inf
    between = _mills(x) - _mills(x + mu)
    return math.log(between) - x * x / 2.0 - math.log(ROOT) if between > 0 else -math.inf


def delta(epsilon: float, mu: float) -> float:
    """delta(epsilon) of mu-GDP.

    >>> f"{delta(0.0, 1.0):.4f} {delta(1.0, 1.0):.4f}"
    '0.3829 0.1269'
    """
    require(epsilon >= 0, f"epsilon must be 0 or more, not {epsilon}")
    return 0.0 if mu == 0 else math.exp(_log_delta(epsilon / mu - mu / 2.0, mu))


def epsilon(noise: float, messages: int, delta: float) -> float:
    """The least epsilon for which `messages` messages are (epsilon, delta)-differentially private; 0 if any is.

    Args:
        noise: standard deviation of the noise on each entry of a message, in units of the clipping norm.
        messages: T.
        delta: in (0, 1).

    >>> round(epsilon(20.0, 100, 1e-5), 4)
    4.3772
    """
    _check_delta(delta)
    mu = separation(noise, messages)
    # delta(epsilon) <= Phi(-x) <= exp(-x^2 / 2), so that x = sqrt(2 log(1/delta)) is enough; the upper end stays enough
    low, high = -mu / 2.0, math.sqrt(-2.0 * math.log(delta))
    if mu == 0 or _log_delta(low, mu) <= math.log(delta):
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _log_delta(middle, mu) <= math.log(delta) else (middle, high)
    return mu * (high + mu / 2.0)


def noise_for(epsilon: float, delta: float, messages: int) -> float:
    """The least noise with which `messages` messages are (epsilon, delta)-differentially private.

    >>> round(noise_for(4.3772, 1e-5, 100), 3)
    20.0
    """
    _check_delta(delta)
    require(0.0 < epsilon < math.inf, f"epsilon must be positive and finite, not {epsilon}")
    require(messages >= 1, f"messages must be at least 1, not {messages}")
    # delta grows with mu, from 0 to 1: `low` is always private enough, `high` never
    low, high = 0.0, 1.0
    while _log_delta(epsilon / high - high / 2.0, high) <= math.log(delta):
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _log_delta(epsilon / middle - middle / 2.0, middle) <= math.log(delta) else (low, middle)
    return 2.0 * math.sqrt(messages) / low


def _check_delta(delta: float) -> None:
    require(0.0 < delta < 1.0, f"delta must be between 0 and 1, not {delta}")
