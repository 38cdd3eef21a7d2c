"""The accountant against a privacy loss that is tabulated, convolved and summed up, and against Renyi's bound."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from fedpg.errors import UserError
from fedpg.theory import privacy

SETTINGS = [(30.0, 150, 1e-5), (8.0, 20, 1e-6), (100.0, 1000, 1e-5), (2.0, 3, 1e-3), (1.0, 1, 1e-5)]
"""noise, messages, delta."""


class Losses:
    """The privacy loss of T messages, log p/q where p is drawn from, in steps of `width`.

    One message is N(0, 1) or N(2/noise, 1): mass on a grid of its values, each cell with the loss at its middle, moved to the two
    neighbouring steps such that the mean stays. Composition is a T-fold convolution. No formula of the accountant is used.
    """

    def __init__(self, noise: float, messages: int, width: float = 2e-4, cells: int = 400_001) -> None:
        shift = 2.0 / noise
        value = np.linspace(-12.0, 12.0, cells)
        mass = np.exp(-(value**2) / 2.0)
        mass /= mass.sum()
        loss = (value - shift) ** 2 / 2.0 - value**2 / 2.0
        below = np.floor(loss / width).astype(int)
        share = loss / width - below
        first = below.min()
        table = np.zeros(below.max() - first + 2)
        np.add.at(table, below - first, mass * (1.0 - share))
        np.add.at(table, below - first + 1, mass * share)
        size = messages * (len(table) - 1) + 1
        power = np.fft.irfft(np.fft.rfft(table, size) ** messages, size) if messages > 1 else table
        self.mass, self.loss = np.maximum(power, 0.0), width * (first * messages + np.arange(len(power)))

    def delta(self, epsilon: float) -> float:
        above = self.loss > epsilon
        return float(np.sum(self.mass[above] * -np.expm1(epsilon - self.loss[above])))


@pytest.mark.parametrize(("noise", "messages", "delta"), SETTINGS)
def test_epsilon_agrees_with_the_tabulated_privacy_loss(noise, messages, delta):
    """To 5e-5 in epsilon: the rest is the table's, and 25 times smaller with steps a fifth as long."""
    found = privacy.epsilon(noise, messages, delta)
    table = Losses(noise, messages)
    assert table.delta(found + 5e-5) < delta < table.delta(found - 5e-5)
    assert table.delta(found) == pytest.approx(delta, rel=2e-4)


@pytest.mark.parametrize(("noise", "messages", "delta"), SETTINGS)
def test_renyi_s_bound_is_above_it_and_not_far(noise, messages, delta):
    """Of order a the divergence of T messages is a mu^2 / 2; Mironov's conversion, over many orders."""
    mu_sq = messages * (2.0 / noise) ** 2
    orders = 1.0 + np.geomspace(1e-2, 1e4, 4000)
    bound = np.min(orders * mu_sq / 2.0 + math.log(1.0 / delta) / (orders - 1.0))
    assert privacy.epsilon(noise, messages, delta) < bound < 1.5 * privacy.epsilon(noise, messages, delta)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 0.3), (0.5, 1.0), (3.0, 1.0), (3.0, 4.0), (20.0, 2.0), (1e-3, 1e-3)])
def test_delta_is_the_integral_of_what_is_above(epsilon, mu):
    """delta(epsilon) = integral of (p - e^epsilon q)_+ over the outcomes."""

    def excess(z):
        return max(stats.norm.pdf(z) - math.exp(epsilon) * stats.norm.pdf(z, mu), 0.0)

    turn = mu / 2.0 - epsilon / mu  # where the two are equal
    expected, _ = integrate.quad(excess, turn - 40.0, turn, limit=500, epsabs=0.0, points=(turn - 1.0, turn - 5.0))
    assert privacy.delta(epsilon, mu) == pytest.approx(expected, rel=1e-6)


def test_extreme_numbers_are_finite_and_inverses_of_each_other():
    for noise, messages, delta in [(0.01, 10**6, 1e-5), (1e4, 1, 1e-9), (5.0, 150, 1e-300), (0.5, 10, 0.5), *SETTINGS]:
        epsilon = privacy.epsilon(noise, messages, delta)
        assert math.isfinite(epsilon)
        assert epsilon > 0
        assert privacy.delta(epsilon, privacy.separation(noise, messages)) == pytest.approx(delta, rel=1e-6)
        enough = privacy.noise_for(epsilon, delta, messages)
        assert enough == pytest.approx(noise, rel=1e-6)
        assert privacy.epsilon(enough, messages, delta) <= epsilon * (1.0 + 1e-12)
    # asymptotically mu^2/2 + mu z, z the delta quantile
    assert privacy.epsilon(0.01, 10**6, 1e-5) == pytest.approx(2e5**2 / 2 + 2e5 * stats.norm.isf(1e-5), rel=1e-9)


def test_nothing_sent_is_nothing_given_away_and_more_messages_give_away_more():
    assert privacy.epsilon(1.0, 0, 1e-5) == 0.0
    assert privacy.epsilon(1e9, 1, 0.5) == 0.0
    spent = [privacy.epsilon(10.0, messages, 1e-5) for messages in (1, 2, 10, 100)]
    assert spent == sorted(spent)
    assert privacy.epsilon(20.0, 400, 1e-5) == pytest.approx(privacy.epsilon(10.0, 100, 1e-5), rel=1e-12)


def test_the_table_of_the_page_is_what_the_functions_say():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "private-messages.md").read_text()
    head, _, *lines = page[page.index("| T |") :].split("\n\n")[0].splitlines()
    noises = [float(cell.split()[1]) for cell in head.split("|")[2:6]]
    assert len(lines) == 4
    for line in lines:
        messages, *found = line.strip("| ").split(" | ")
        spent = [f"{privacy.epsilon(noise, int(messages), 1e-5):.2f}" for noise in noises]
        assert found == spent + [f"{privacy.noise_for(epsilon, 1e-5, int(messages)):.1f}" for epsilon in (1.0, 4.0)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: privacy.epsilon(0.0, 1, 1e-5), "without it nothing is private"),
        (lambda: privacy.epsilon(1.0, -1, 1e-5), "messages must be 0 or more"),
        (lambda: privacy.epsilon(1.0, 1, 0.0), "delta must be between 0 and 1"),
        (lambda: privacy.noise_for(0.0, 1e-5, 1), "epsilon must be positive"),
        (lambda: privacy.noise_for(1.0, 1e-5, 0), "messages must be at least 1"),
        (lambda: privacy.delta(-1.0, 1.0), "epsilon must be 0 or more"),
    ],
)
def test_mistakes(call, said):
    with pytest.raises(UserError, match=said):
        call()
