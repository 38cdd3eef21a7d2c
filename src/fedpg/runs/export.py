"""A policy to hand on: params, spec, ONNX and a model card in one folder."""

import json
from pathlib import Path
from typing import Any

from fedpg.errors import UserError, require
from fedpg.runs import onnx, policy_files
from fedpg.runs import policy as files
from fedpg.runs.config import to_toml
from fedpg.runs.folder import write_atomically
from fedpg.runs.policy import Spec, TrainedPolicy

CARD = """---
library_name: fedpg
tags:
- {quoted_env}
- reinforcement-learning
- federated-learning
- fedpg
model-index:
- name: {quoted_algorithm}
  results:
  - task:
      type: reinforcement-learning
      name: reinforcement-learning
    dataset:
      name: {quoted_env}
      type: {quoted_env}
    metrics:
    - type: mean_reward
      value: {reward}
      name: mean_reward
      verified: false
---

# {algorithm} on {env}

{what} It was trained with fedpg {version} for {round} rounds; {moved}.

| | |
|---|---|
| mean reward | {reward} ({measured}) |
| environment | {env}, {agents} agents, heterogeneity {heterogeneity} |
| policy | {policy}{scaled} |
| observation | {observation} |
| action | {action} |
| seed | {seed} |

## Use

```python
import fedpg  # this part needs NumPy and safetensors, not JAX

policy = fedpg.load("{folder}")
action, _ = policy.predict(observation, deterministic=True)
```
{onnx}
Files: `policy.safetensors` holds the params, `policy.json` what they mean{more}.

## Configuration

```toml
{config}```
"""
ONNX_USE = """
Without fedpg, in any runtime of ONNX:

```python
import onnxruntime

session = onnxruntime.InferenceSession("{folder}/policy.onnx")
(action,) = session.run(["action"], {{"observation": observations}})  # a batch, {dtype}
```
"""


def export(
    path: str | Path, out: Path, *, seed: int | None = None, agent: int | None = None, reward: tuple[float, float, str] | None = None
) -> tuple[list[Path], list[str]]:
    """Writes policy.safetensors, policy.json, policy.onnx and README.md into `out`.

    Args:
        path: a run, or another export.
        out: must be empty or absent.
        seed, agent: whose policy, as in `fedpg.load`.
        reward: mean, deviation, and how they were measured; None takes the last evaluation of the run.

    Returns:
        The files, and one line for each that had to be left out.
    """
    one = files.read(path).one(seed, agent)
    policy = TrainedPolicy(one.spec, one.arrays)
    require(not out.exists() or (out.is_dir() and not any(out.iterdir())), f"{out} is not empty: give another --out")
    written, left_out = [files.write(out, one.spec, one.arrays), out / files.SPEC], []
    try:
        written.append(onnx.write(policy, out / "policy.onnx"))
    except UserError as error:
        left_out.append(f"policy.onnx is left out: {error}")
    write_atomically(out / "README.md", card(one.spec, out.name, reward, len(written) == 3).encode())
    return [*written, out / "README.md"], left_out


def card(spec: Spec, folder: str, reward: tuple[float, float, str] | None = None, with_onnx: bool = True) -> str:
    """The model card, Markdown with the front matter that Hugging Face reads."""
    config, agents = policy_files.config_of(spec), spec.agents
    value, measured = "unknown", "the agents kept their returns to themselves"
    if reward is not None:
        value, measured = f"{reward[0]:.2f} +/- {reward[1]:.2f}", reward[2]
    elif spec.returns[0] is not None:
        value, measured = f"{spec.returns[0]:.2f}", "last evaluation of the run, mean over agents"
    what = f"One policy for {agents} different environments." if not spec.personal else f"The policy of agent {spec.agent} of {agents}."
    dtype = "int64" if spec.observation[0].kind == "discrete" else "float32"
    env, algorithm = (Path(name).name if ".py:" in name else name for name in (config.env, config.algorithm))
    return CARD.format(
        env=env,
        algorithm=algorithm,
        quoted_env=json.dumps(env),  # a string of JSON is one of YAML
        quoted_algorithm=json.dumps(algorithm),
        reward=value,
        measured=measured,
        what=what,
        moved="the trajectories of all agents were in one place" if config.algorithm == "pooled" else "no trajectory left its agent",
        version=spec.made_with.get("fedpg") or "",
        round=spec.round,
        agents=agents,
        heterogeneity=config.heterogeneity,
        policy=f"{spec.policy}, hidden layers {list(config.hidden)}" if config.hidden else spec.policy,
        scaled=", on scaled observations" if spec.scaled else "",
        observation=_shown(spec.observation[0]),
        action=_shown(spec.action[0]),
        seed=spec.seeds[0],
        folder=folder,
        onnx=ONNX_USE.format(folder=folder, dtype=dtype) if with_onnx else "",
        more=", `policy.onnx` the same policy for other runtimes" if with_onnx else "",
        config=to_toml(config),
    )


def _shown(space: Any) -> str:
    return f"one of {space.n}" if space.kind == "discrete" else f"{json.dumps(list(space.shape))} numbers"
