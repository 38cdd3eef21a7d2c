"""FedSVRPG-M on CartPole as one would write it with PyTorch and Gymnasium: the peer of `fedpg bench cartpole`.

    python -m fedpg.bench.torch_cartpole

Agents take their turns in one process; a trajectory is one loop over `env.step`, and its log probabilities are computed in one batch.
"""

import time
from typing import Any

import gymnasium
import torch

BETA, LOCAL_LR, DISCOUNT = 0.2, 1e-6, 0.99


def policy() -> torch.nn.Sequential:
    """The paper's network."""
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def sample(env: Any, net: torch.nn.Module, horizon: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Observations, actions and G_t of one trajectory; it goes on for the whole horizon, as ours does in the benchmark."""
    observation, _ = env.reset()
    observations, actions, rewards = [], [], []
    with torch.no_grad():
        for _ in range(horizon):
            seen = torch.from_numpy(observation)
            action = torch.distributions.Categorical(logits=net(seen)).sample()
            observations.append(seen)
            actions.append(action)
            observation, reward, _, _, _ = env.step(int(action))
            rewards.append(float(reward))
    discounted = torch.tensor(rewards) * DISCOUNT ** torch.arange(horizon)
    return torch.stack(observations), torch.stack(actions), discounted.flip(0).cumsum(0).flip(0)


def log_probs(net: torch.nn.Module, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """log pi(a_t|s_t), (H,)."""
    return torch.distributions.Categorical(logits=net(observations)).log_prob(actions)


def gradient(net: torch.nn.Module, found: torch.Tensor, returns: torch.Tensor) -> list[torch.Tensor]:
    """g(tau|theta)."""
    return list(torch.autograd.grad((found * returns).sum(), list(net.parameters())))


def local_steps(env: Any, net: torch.nn.Module, previous: torch.nn.Module, direction: list[torch.Tensor], steps: int, horizon: int) -> None:
    """The K local steps of an agent."""
    for _ in range(steps):
        observations, actions, returns = sample(env, net, horizon)
        found, before = log_probs(net, observations, actions), log_probs(previous, observations, actions)
        weight = float(torch.exp((before.detach() - found.detach()).sum()))
        g, g_before = gradient(net, found, returns), gradient(previous, before, returns)
        with torch.no_grad():
            for parameter, u, new, old in zip(net.parameters(), direction, g, g_before, strict=True):
                parameter += LOCAL_LR * (new + (1.0 - BETA) * (u - weight * old))


def rate(agents: int, steps: int, horizon: int, rounds: int = 1) -> float:
    """Environment steps a second of whole rounds."""
    torch.set_num_threads(1)
    gymnasium.logger.min_level = gymnasium.logger.ERROR  # it warns of steps after the end of an episode
    envs = [gymnasium.make("CartPole-v1", disable_env_checker=True).unwrapped for _ in range(agents)]
    server, previous = policy(), policy()
    previous.load_state_dict(server.state_dict())
    direction = [torch.zeros_like(x) for x in server.parameters()]
    began = time.perf_counter()
    for _ in range(rounds):
        moved = []
        for env in envs:
            net = policy()
            net.load_state_dict(server.state_dict())
            local_steps(env, net, previous, direction, steps, horizon)
            moved.append([new.detach() - old.detach() for new, old in zip(net.parameters(), server.parameters(), strict=True)])
        previous.load_state_dict(server.state_dict())
        with torch.no_grad():
            direction = [torch.stack(parts).mean(0) / (LOCAL_LR * steps) for parts in zip(*moved, strict=True)]
            for parameter, u in zip(server.parameters(), direction, strict=True):
                parameter += LOCAL_LR * steps * u
    return rounds * agents * steps * horizon / (time.perf_counter() - began)


if __name__ == "__main__":
    print(f"{rate(4, 10, 100):,.0f} environment steps a second")
