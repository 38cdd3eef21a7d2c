"""A trained policy as an ONNX model (the extra `onnx`): observations in, actions and the policy's outputs out."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from fedpg.errors import UserError, require
from fedpg.runs.policy import FURTHEST, TABLES, TrainedPolicy, bounds
from fedpg.runs.policy_spec import PER_STATE

OPSET = 17


def write(policy: TrainedPolicy, path: Path) -> Path:
    """Writes the model. Input `observation`, (batch, ...); outputs `action`, as the environment takes it, and `logits` or `mean`.

    Raises:
        UserError: if onnx is not installed, or the policy is a function of the user's own.
    """
    require(":" not in policy.spec.policy, "a policy of your own is Python code and cannot be written as ONNX")
    try:
        import onnx
    except ImportError:
        raise UserError("policy.onnx needs the package onnx: pip install 'fedpg[onnx]'") from None
    graph = _Graph(onnx)
    observation, action = policy.spec.observation[0], policy.spec.action[0]
    discrete = observation.kind == "discrete"
    given = onnx.helper.make_tensor_value_info(
        "observation", onnx.TensorProto.INT64 if discrete else onnx.TensorProto.FLOAT, ["batch", *observation.shape]
    )
    x = "observation"
    if discrete:
        x = graph.add("Sub", x, graph.constant(np.int64(observation.start)))
    outputs = _outputs(graph, policy, x)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(action.dtype))
    found = _actions(graph, policy, outputs)
    graph.add("Cast", found, name="action", to=kind)
    name = "mean" if action.kind == "box" else "logits"
    graph.add("Identity", outputs, name=name)
    results = [
        onnx.helper.make_tensor_value_info("action", kind, ["batch", *action.shape]),
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", None]),
    ]
    made = onnx.helper.make_graph(graph.nodes, "policy", [given], results, graph.constants)
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="fedpg", ir_version=8)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


class _Graph:
    """Nodes and constants in the order in which they were added; every method returns the name of a value."""

    def __init__(self, onnx: Any) -> None:
        self._onnx, self.nodes, self.constants = onnx, [], []

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operation: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"value_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operation, list(inputs), [name], **attributes))
        return name


def _outputs(graph: _Graph, policy: TrainedPolicy, x: str) -> str:
    """Logits, (batch, A), or means, (batch, D); the same formulas as `TrainedPolicy.outputs`."""
    params, spec, observation = policy.params, policy.spec, policy.spec.observation[0]
    if spec.policy in TABLES:
        table = params[TABLES[spec.policy]]
        return graph.add("Gather", graph.constant(np.log(table) if spec.policy == "direct" else table), x)
    if observation.kind == "discrete":
        x = graph.add("Gather", graph.constant(np.eye(observation.n, dtype=np.float32)), x)
    elif spec.scaled:
        x = graph.add("Sub", x, graph.constant(params["observation.mean"]))
        x = graph.add("Div", x, graph.constant(params["observation.deviation"]))
        x = graph.add("Clip", x, *(graph.constant(np.float32(bound)) for bound in (-FURTHEST, FURTHEST)))
    x = graph.add("Reshape", x, graph.constant(np.array([-1, params["layers.0.matrix"].shape[0]])))
    layers = sum(name.endswith(".matrix") for name in params)
    for i in range(layers):
        x = graph.add("MatMul", x, graph.constant(params[f"layers.{i}.matrix"]))
        x = graph.add("Add", x, graph.constant(params[f"layers.{i}.bias"]))
        x = graph.add("Tanh", x) if i < layers - 1 else x
    if spec.policy in PER_STATE:  # the second half is the deviation
        x = graph.add("Slice", x, *(graph.constant(np.array([at])) for at in (0, math.prod(spec.action[0].shape), -1)))
    return x


def _actions(graph: _Graph, policy: TrainedPolicy, outputs: str) -> str:
    """The most likely actions, as the environment takes them; the same formulas as `fedpg.runs.policy.to_environment`."""
    action = policy.spec.action[0]
    if action.kind == "discrete":
        return graph.add("Add", graph.add("ArgMax", outputs, axis=-1, keepdims=0), graph.constant(np.int64(action.start)))
    squashed = graph.add("Tanh", outputs) if policy.spec.policy == "tanh-gaussian" else outputs
    x = graph.add("Reshape", squashed, graph.constant(np.array([-1, *action.shape])))
    if policy.spec.scaled_actions:
        low, high = bounds(action)
        both = np.isfinite(low) & np.isfinite(high)
        from_low, to_high = np.where(both, low, -1.0), np.where(both, high, 1.0)
        x = graph.add("Mul", x, graph.constant(((to_high - from_low) / 2.0).astype(np.float32)))
        x = graph.add("Add", x, graph.constant(((to_high + from_low) / 2.0).astype(np.float32)))
        x = graph.add("Min", graph.add("Max", x, graph.constant(low.astype(np.float32))), graph.constant(high.astype(np.float32)))
    return graph.add("Round", x) if np.issubdtype(np.dtype(action.dtype), np.integer) else x
