"""Learners: how an agent turns a batch into a direction.

    direction(key, sample, params, memory, tilt, local_lr) -> Moved(direction, own), memory

A learner takes one or many small steps from params; they end at params + local_lr * direction. `own` is their mean before tilting.
`tilt` is what a federated algorithm makes of every small step: SCAFFOLD adds c - c_i to it, FedProx pulls it back. So a correction acts
inside the epochs of a learner.

    reinforce       one small step: the gradient of the batch (the paper)
    actor_critic    epochs of minibatch steps with a critic, clipping and Adam (PPO)
"""

from fedpg.learners.reinforce import Direction, Moved, Tilt, untilted

LEARNERS = ("reinforce", "actor-critic")
"""The names that `--learner` takes."""

__all__ = ["LEARNERS", "Direction", "Moved", "Tilt", "untilted"]
