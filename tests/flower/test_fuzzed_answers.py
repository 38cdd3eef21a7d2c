"""Ten thousand damaged answers: each is refused in one line, or is what was asked for."""

from __future__ import annotations

import json

import jax
import numpy as np
from fedpg.flower.answers import Update
from fedpg.flower.asking import Asking, Terms
from fedpg.flower.packets import START, pack, schema

from fedpg.flower import tasks
from helpers.hostile import assert_one_line, mutations


class Fuzzed:
    """A link to `count` agents that all answer with damaged packets."""

    def __init__(self, count, arrays):
        self.count, self.arrays, self.sent, self.seed = count, arrays, {}, 0

    def present(self):
        return set(range(self.count))

    def ask(self, sent, seconds):
        self.seed += 1
        for agent, packet in sent.items():
            task = json.loads(packet[START : START + int.from_bytes(packet[START - 4 : START], "big")])
            good = pack(tasks.write(tasks.Answer(task["serial"], task["run"], agent, schema=schema(self.arrays))), self.arrays)
            self.sent[agent] = list(mutations(good, agent % 8 + 1, seed=1000 * self.seed + agent))[-1]
        return self.sent


def test_ten_thousand_fuzzed_answers():
    """Each is refused with one line, or holds what was asked for: arrays of the right names, types and shapes, finite, not too long."""
    template = Update(jax.ShapeDtypeStruct((4, 3), "float32"), jax.ShapeDtypeStruct((), "int32"))
    link = Fuzzed(500, {"message": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "info": np.array(4, np.int32)})
    asking = Asking(Terms("run-0", "", largest_norm=100.0), link=link)
    used = 0
    for _ in range(20):
        heard = asking.ask(tasks.Task(tasks.UPDATE, "", ""), {}, template, np.arange(500), None, None)
        refused = [event for event in asking.take() if event["what"].startswith("refused: ")]
        assert [event["agent"] for event in refused] == [agent for agent, one in enumerate(heard) if one.tree is None]
        for event in refused:
            assert_one_line(event["what"])
        for one in heard:
            assert one.answered
            assert not one.withheld
            if one.tree is not None:
                used += 1
                message, info = one.tree
                assert (message.shape, message.dtype, info.shape, info.dtype) == ((4, 3), np.float32, (), np.int32)
                assert np.isfinite(message).all()
                assert np.linalg.norm(message.astype(float)) <= 100.0
    assert 0 < used < 1_500, "damage to the numbers themselves cannot be seen, any other can"
