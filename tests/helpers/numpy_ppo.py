"""PPO in plain NumPy, every derivative written out: what the actor-critic is tested against. A Gaussian policy, tanh networks."""

from __future__ import annotations

from typing import Any

import numpy as np

Layers = list[dict[str, np.ndarray]]


def advantages(reward, value, next_value, terminated, ended, discount, decay):
    """A_t of one lane, by a loop."""
    found, after = np.zeros_like(reward), 0.0
    for t in reversed(range(len(reward))):
        delta = reward[t] + (0.0 if terminated[t] else discount * next_value[t]) - value[t]
        after = delta + (0.0 if ended[t] else discount * decay * after)
        found[t] = after
    return found


def forward(layers: Layers, x: np.ndarray) -> list[np.ndarray]:
    """The inputs of every layer, and the outputs of the last."""
    seen = [x]
    for i, layer in enumerate(layers):
        x = x @ layer["matrix"] + layer["bias"]
        x = np.tanh(x) if i < len(layers) - 1 else x
        seen.append(x)
    return seen


def backward(layers: Layers, seen: list[np.ndarray], slope: np.ndarray) -> Layers:
    """The gradient of sum(outputs * slope) with respect to every layer."""
    found = []
    for i in reversed(range(len(layers))):
        if i < len(layers) - 1:
            slope = slope * (1.0 - seen[i + 1] ** 2)
        found.append({"bias": slope.sum(0), "matrix": seen[i].T @ slope})
        slope = slope @ layers[i]["matrix"].T
    return found[::-1]


def log_prob(policy: dict[str, Any], observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    z = (action - forward(policy["layers"], observation)[-1]) / np.exp(policy["log_std"])
    return np.sum(-0.5 * z**2 - policy["log_std"] - 0.5 * np.log(2.0 * np.pi), axis=1)


def value(critic: Layers, observation: np.ndarray) -> np.ndarray:
    return forward(critic, observation)[-1][:, 0]


class PPO:
    """Params {"policy": {"layers", "log_std"}, "critic": layers} and Adam's moments, moved by `update`."""

    def __init__(self, params: Any, settings: Any, discount: float) -> None:
        self.params, self.settings, self.discount = params, settings, discount
        self.first, self.second, self.count = {}, {}, 0

    def leaves(self, tree: Any) -> dict[str, np.ndarray]:
        found = {"log_std": tree["policy"]["log_std"]}
        for name, layers in (("policy", tree["policy"]["layers"]), ("critic", tree["critic"])):
            found |= {f"{name}{i}{part}": layer[part] for i, layer in enumerate(layers) for part in ("bias", "matrix")}
        return found

    def gradient(self, rows: dict[str, np.ndarray]) -> Any:
        """Of surrogate - value_weight * value loss + entropy * H on a minibatch."""
        policy, critic, s, n = self.params["policy"], self.params["critic"], self.settings, len(rows["advantage"])
        seen = forward(policy["layers"], rows["observation"])
        std = np.exp(policy["log_std"])
        z = (rows["action"] - seen[-1]) / std
        w = np.exp(log_prob(policy, rows["observation"], rows["action"]) - rows["log_prob"])
        a = (rows["advantage"] - rows["advantage"].mean()) / (rows["advantage"].std() + 1e-8)
        own = (np.where(w * a <= np.clip(w, 1 - s.clip, 1 + s.clip) * a, w * a, 0.0) / n)[:, None]
        judged = forward(critic, rows["observation"])
        v, old, target = judged[-1][:, 0], rows["value"], rows["target"]
        clipped = old + np.clip(v - old, -s.value_clip, s.value_clip)
        slope = np.where((v - target) ** 2 >= (clipped - target) ** 2, v - target, 0.0) / n
        return {
            "policy": {
                "layers": backward(policy["layers"], seen, own * z / std),
                "log_std": (own * (z**2 - 1.0)).sum(0) + s.entropy,
            },
            "critic": backward(critic, judged, -s.value_weight * slope[:, None]),
        }

    def step(self, rows: dict[str, np.ndarray], rate: float) -> None:
        """One step of Adam up the gradient, cut to its largest norm."""
        found = self.leaves(self.gradient(rows))
        norm = np.sqrt(sum((g**2).sum() for g in found.values()))
        shrink = min(1.0, self.settings.max_grad_norm / norm)
        self.count += 1
        for name, leaf in self.leaves(self.params).items():
            g = shrink * found[name]
            self.first[name] = 0.9 * self.first.get(name, 0.0) + 0.1 * g
            self.second[name] = 0.999 * self.second.get(name, 0.0) + 0.001 * g**2
            m, v = self.first[name] / (1.0 - 0.9**self.count), self.second[name] / (1.0 - 0.999**self.count)
            leaf += rate * m / (np.sqrt(v) + 1e-5)

    def update(self, rollout: Any, reward: np.ndarray, minibatches: np.ndarray, rate: float) -> None:
        """All epochs on a rollout with axes (B, T, ...); `minibatches` are indices of its B T steps."""
        lanes = [self.lane(*rows) for rows in zip(*rollout, reward, strict=True)]
        rows = {name: np.concatenate([lane[name] for lane in lanes]) for name in lanes[0]}
        for ids in minibatches:
            self.step({name: column[ids] for name, column in rows.items()}, rate)

    def lane(self, observation, action, _, terminated, ended, following, __, reward) -> dict[str, np.ndarray]:
        v, after = value(self.params["critic"], observation), value(self.params["critic"], following)
        a = advantages(reward, v, after, terminated, ended, self.discount, self.settings.gae_lambda)
        old = log_prob(self.params["policy"], observation, action)
        return {"observation": observation, "action": action, "log_prob": old, "value": v, "advantage": a, "target": a + v}
