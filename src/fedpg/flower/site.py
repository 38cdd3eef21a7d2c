"""One agent: takes a task, does it in its own environment, and answers. It trusts the server no more than the server trusts it.

What leaves is what `answer` returns: the algorithm's message; unless they are withheld, what it cost and how good the params are,
a few sums; and one line for each thing that went wrong. No observation, action or reward does.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from fedpg import named_arrays as wire
from fedpg.algorithms.wrappers import privacy
from fedpg.errors import UserError
from fedpg.flower import packets, tasks
from fedpg.flower.packets import Refused
from fedpg.flower.states import LARGEST_DELTA, Ledger, States
from fedpg.flower.tasks import Answer, Task
from fedpg.flower.work import Own, Work
from fedpg.runs import config as configs
from fedpg.runs.config import Config
from fedpg.runs.setup import resolve

SECRET_BYTES = 32


class Site:
    """Answers tasks, one at a time, and keeps the agent's state on its disk.

    Args:
        own: what it decides for itself.
        folder: its own, for states.
        tell: called with one line for each thing that a person there may want to know.
        work_of: what does the work for a configuration.
    """

    def __init__(
        self,
        own: Own,
        folder: Path,
        tell: Callable[[str], None] = lambda line: None,
        work_of: Callable[[Config, Own], Work] = Work,
    ) -> None:
        self._own, self._folder, self._tell, self._work_of = own, folder, tell, work_of
        self._busy = threading.Lock()
        self._work: tuple[str, Work] | None = None

    def answer(self, data: bytes) -> bytes:
        """The answer to a task, whatever happens: an error becomes an answer too."""
        header = Answer(0, "", self._own.agent)
        try:
            packet = packets.unpack(data)
            task = tasks.read(Task, packet.header)
            header = dataclasses.replace(header, serial=task.serial, run=task.run)
            if not self._busy.acquire(timeout=max(task.seconds, 1.0)):
                raise Refused("still busy with an earlier task")
            try:
                # GPUs round matrix products to TF32 unless told otherwise.
                with jax.default_matmul_precision("highest"):
                    more, arrays = self._do(task, packet.arrays)
            finally:
                self._busy.release()
            return packets.pack(tasks.write(dataclasses.replace(header, **more, schema=packets.schema(arrays))), arrays)
        except Exception as error:  # whatever it is, the server must hear of it, and this agent must live on
            ours = isinstance(error, (Refused, UserError))
            self._tell(f"task not done: {tasks.one_line(str(error) if ours else f'{type(error).__name__}: {error}')}")
            # The text of somebody else's exception may quote what its environment saw.
            line = str(error) if ours else f"{type(error).__name__}, of which its own log says more"
            events = self._events(self._work[1]) if self._work else ()
            return packets.pack(tasks.write(dataclasses.replace(header, error=tasks.one_line(line), events=events)), {})

    def _do(self, task: Task, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Fields of the answer's header, and its arrays."""
        work = self._work_for(task)
        if task.kind == tasks.HELLO:
            return {}, {}
        first_shared, first_state = work.beginning
        if task.kind == tasks.REPORT:
            like = work.algorithm.deployed(first_shared, first_state)
            if work.withheld:
                return {"withheld": True}, {}
            return {"events": self._events(work)}, wire.flatten(work.report(task, _read(like, arrays)))
        shared, states = _read(first_shared, arrays), States(self._folder, task.run)
        found = first_state if task.start == tasks.BEGINNING else states.load(task.start, first_state)
        state = first_state if found is None else found
        if task.kind == tasks.EVALUATE and work.withheld:
            return {"withheld": True}, {}
        if task.kind == tasks.EVALUATE:
            sent = wire.flatten(self._evaluate(work, task, shared, state))
        elif task.kind == tasks.UPDATE:
            sent, state = self._update(work, task, shared, state)
            states.save(task.result, state)
            states.forget_before(task.result, but={task.start, task.keep})
        else:
            raise Refused("a task of a kind that this version of fedpg does not know")
        return {"events": self._events(work), "fresh": found is None}, sent

    def _events(self, work: Work) -> tuple[str, ...]:
        """What the server hears of what went wrong; people here are told all of it."""
        events = work.events()
        for event in events:
            self._tell(f"in the environment: {event}")
        return () if work.withheld else tuple(first_words(event) for event in events[: tasks.MOST_EVENTS])

    def _evaluate(self, work: Work, task: Task, shared: Any, state: Any) -> Any:
        grade = work.evaluate(task, shared, state)
        self._tell(f"after {task.round} rounds: return {float(grade.total_return):.2f} here")
        return grade

    def _update(self, work: Work, task: Task, shared: Any, state: Any) -> tuple[dict[str, Any], Any]:
        """The arrays that leave, and the state that follows."""
        began, config, ledger = time.monotonic(), work.config, Ledger(self._folder)
        if config.noise > 0:
            total, given = ledger.after(config.noise, config.privacy_delta)
            if 0 < self._own.most_epsilon < given:
                raise Refused(f"its privacy budget of epsilon {self._own.most_epsilon} is spent")
            ledger.write(total)
            self._tell(f"with this message epsilon is {given:.3g} at delta {min(config.privacy_delta, LARGEST_DELTA):g}")
            # New dice for every answer: a server that asks twice from one state must not get the same noise twice.
            state = privacy.with_secret(state, os.urandom(SECRET_BYTES))
        update, state = work.update(task, shared, state)
        sent = wire.flatten(update)
        # A message that is not finite would be refused; the server hears why there is none instead.
        packets.checked(sent, wire.shapes(update))
        took = time.monotonic() - began
        self._tell(f"round {task.round}: sent a message of {sum(array.size for array in sent.values()):,} numbers in {took:.2f} s")
        return sent, state

    def _work_for(self, task: Task) -> Work:
        """Built anew when the server's configuration is not the one of the last task."""
        if self._work is None or self._work[0] != task.config:
            theirs = Config(**configs.parse(task.config, "the server's configuration"))
            config = resolve(self._own.configuration(theirs))
            if config.noise < self._own.least_noise:
                raise Refused(f"the server asks for noise {config.noise}, this agent for at least {self._own.least_noise}")
            if config.noise == 0 and self._own.most_epsilon > 0:
                raise Refused("the server asks for no noise, and without it no message keeps within this agent's privacy budget")
            self._work = task.config, self._work_of(config, self._own)
        return self._work[1]


def first_words(event: str) -> str:
    """What of an event may leave: what comes after a colon or a digit may be a number that the environment made.

    >>> first_words("step raised ValueError: 3.7 is too much"), first_words("observation holds 1e+300")
    ('step raised ValueError', 'observation holds')
    """
    return tasks.one_line(re.match(r"[^:\d(-]*", event)[0].strip() or "something went wrong")


def _read(like: Any, arrays: dict[str, Any]) -> Any:
    """`arrays` as a tree like `like`; refused if they do not fit it."""
    return wire.unflatten(like, packets.checked(arrays, wire.shapes(like)))
