"""The protocol between a server and its agents: one packet to an agent, one packet back. Nothing in a packet is trusted.

    hello      which agent are you, and do you accept this run?
    update     shared, and the number of the state to start from     -> the message, and what it cost
    report     params                                                -> what a candidate for the round reports
    evaluate   shared, and the number of a state                     -> return and objective
    refused    why the server refuses this agent                     -> nothing
    over       the run is over; or: go, you have said that you leave -> nothing

An agent that leaves for good says so instead of any answer.

A packet is plain data, so reading one runs no code of its sender:

    FEDPG + version, 1 byte | length of the header, 4 bytes | header, JSON | arrays, safetensors

An agent's state never travels. The server holds only its number, which says after which exchange the agent wrote it. So the server
decides whether an exchange counts: one whose message came too late, was refused or was lost starts again from the state before it.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import safetensors
import safetensors.numpy

from fedpg import named_arrays
from fedpg.envs.base import Discrete, Environment, Space
from fedpg.envs.host import HostEnvironment
from fedpg.errors import UserError, one_line

VERSION = 3
MAGIC = b"FEDPG" + bytes([VERSION])
HEADER_START = len(MAGIC) + 4
MAX_HEADER = 1 << 16
MAX_EVENTS = 20
"""Events in one answer."""
RECORD, PACKET = "fedpg", "packet"
"""Where in a Flower message the packet is."""
FIRST_STATE = -1
"""The number of the state that an agent begins a run with."""

NUMPY_TYPES = {"BOOL": "bool"} | {f"{kind.upper()}{8 * size}": f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)}
"""The types of safetensors that a packet may have."""

Number = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
Header = TypeVar("Header", bound=msgspec.Struct)


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The header of a packet to an agent.

    Attributes:
        run: the name of the run; agents keep the states of different runs apart.
        config: the server's configuration as TOML; the agent keeps its own environment.
        serial: the number of this task, which the answer must repeat.
        purpose: what the agent's random key is for, see `fedpg.keys.Purpose`.
        number: which of the exchanges of that purpose.
        from_state: the number of the state to start from.
        to_state: the number of the state that follows.
        keep_state: the number of the state in the server's last checkpoint, which must not be deleted yet.
        seconds: how long the server waits for the answer.
        text: one line for people at the agent.
    """

    kind: Literal["hello", "update", "report", "evaluate", "refused", "over"]
    run: str
    config: str
    serial: Number = 0
    round: Number = 0
    purpose: Number = 0
    number: Number = 0
    from_state: Number = FIRST_STATE
    to_state: Number = FIRST_STATE
    keep_state: Number = FIRST_STATE
    seconds: float = 0.0
    text: str = ""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The header of a packet to the server.

    Attributes:
        serial, run: those of the task that it answers.
        error: why there are no arrays; empty if there are.
        withheld: whether the agent keeps a report or an evaluation to itself.
        fresh: whether the state to start from was gone, so that the agent started from its first one.
        events: what went wrong in its environment, one line each.
        shapes: in the answer to a hello, what `shapes_of` says.
        leaving: whether the agent leaves for good, whatever it was asked.
    """

    serial: Number
    run: str
    agent: Number
    error: str = ""
    withheld: bool = False
    fresh: bool = False
    events: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_EVENTS)] = ()
    shapes: str = ""
    leaving: bool = False


class Update(NamedTuple):
    """The arrays of the answer to an update or a report: the algorithm's message, or the report, and what it cost."""

    message: Any
    info: Any


class Grade(NamedTuple):
    """The arrays of the answer to an evaluation: two numbers."""

    total_return: jax.Array
    objective: jax.Array


class Refused(Exception):
    """A packet, or its content, is not what was asked for. The text is one printable line."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class Left(Refused):
    """Instead of an answer, the agent says that it leaves for good."""


def spaces_of(environment: Environment | HostEnvironment) -> str:
    """The shapes of observations and actions, which all agents must share.

    >>> from fedpg.envs import cartpole
    >>> spaces_of(cartpole.ENVIRONMENT)
    'observations of 4 numbers, actions 1 of 2'
    """

    def describe(space: Space) -> str:
        if isinstance(space, Discrete):
            return f"1 of {space.n}"
        return f"of {'x'.join(map(str, space.shape))} numbers"

    return f"observations {describe(environment.observation_space)}, actions {describe(environment.action_space)}"


def shapes_of(environment: Environment | HostEnvironment, shared: Any) -> str:
    """The spaces of an environment, and a digest of the names, shapes and types of what is broadcast."""
    leaves = jax.tree_util.tree_flatten_with_path(shared)[0]
    text = repr([(jax.tree_util.keystr(path), jnp.shape(x), str(jnp.result_type(x))) for path, x in leaves])
    return f"{spaces_of(environment)} #{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def pack(header: Task | Answer, arrays: dict[str, np.ndarray]) -> bytes:
    """The packet as bytes. Arrays go by their paths (`fedpg.named_arrays`)."""
    text = msgspec.json.encode(header)
    if len(text) > MAX_HEADER:
        raise Refused(f"a header of {len(text)} bytes is longer than {MAX_HEADER}")
    # safetensors copies the memory where an array begins, whatever its strides
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return MAGIC + len(text).to_bytes(4, "big") + text + safetensors.numpy.save(whole)


def unpack(data: bytes, kind: type[Header], max_bytes: int = 1 << 30) -> tuple[Header, dict[str, np.ndarray]]:
    """The header, of type `kind`, and the arrays of a packet.

    >>> unpack(pack(Task("hello", "run", "", round=3), {"params": np.ones(2)}), Task)[0].round
    3

    Raises:
        Refused: for anything that `pack` does not produce.
    """
    if len(data) > max_bytes:
        raise Refused(f"{len(data)} bytes are more than the {max_bytes} allowed")
    if data[:5] != MAGIC[:5] or len(data) < HEADER_START:
        raise Refused("not a packet of fedpg")
    if data[: len(MAGIC)] != MAGIC:
        raise Refused(f"a packet of format {data[5]}, here {VERSION}: one side runs another version of fedpg")
    end = HEADER_START + int.from_bytes(data[len(MAGIC) : HEADER_START], "big")
    if end > min(HEADER_START + MAX_HEADER, len(data)):
        raise Refused("a packet cut short")
    try:
        header = msgspec.json.decode(data[HEADER_START:end], type=kind)
        arrays = {
            name: np.frombuffer(about["data"], NUMPY_TYPES[about["dtype"]]).reshape(about["shape"])
            for name, about in safetensors.deserialize(data[end:])
        }
    except msgspec.ValidationError as error:
        raise Refused(f"a header that this version of fedpg does not know: {error}") from None
    except (ValueError, RecursionError, safetensors.SafetensorError, KeyError, TypeError, OverflowError) as error:
        raise Refused(f"a damaged packet ({type(error).__name__})") from None
    return header, arrays


def read_arrays(template: Any, arrays: dict[str, np.ndarray], max_norm: float = math.inf, bounded: str = "") -> Any:
    """`arrays` as a tree like `template`: the only place where names, types, shapes and values of received arrays are checked.

    Raises:
        Refused: if a name, type or shape differs, a number is not finite, or the arrays whose names begin with `bounded` have
            a Euclidean norm above `max_norm`.
    """
    try:
        tree = named_arrays.unflatten(template, arrays)
    except UserError as error:
        raise Refused(str(error)) from None
    norm_sq = 0.0
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            if not np.isfinite(array).all():
                raise Refused(f"{name} is not finite")
            with np.errstate(over="ignore"):  # an infinite norm is above every bound
                norm_sq += float(np.sum(np.square(array, dtype=np.float64))) if name.startswith(bounded) else 0.0
    if not math.sqrt(norm_sq) <= max_norm:
        raise Refused(f"a norm of {math.sqrt(norm_sq):.3g} is above the bound of {max_norm:.3g}")
    return tree


def read_answer(data: bytes, agent: int, task: Task, template: Any, max_norm: float, note: Callable[[int, str], None]) -> Any:
    """What `agent` answered to `task`, as a tree like `template`; None if the agent withholds it, and may.

    `note` is called with the agent and a line for each event in the answer. `max_norm` is for the message: costs may be larger.

    Raises:
        Refused: if the answer is not what was asked for.
        Left: if the agent leaves for good.
    """
    size = sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(template))
    answer, arrays = unpack(data, Answer, 2 * size + 8 * MAX_HEADER)
    if answer.error and not answer.run:  # the agent could not read the task
        raise Refused(answer.error)
    if (answer.run, answer.agent) != (task.run, agent):
        raise Refused("an answer of another run, or for another agent")
    if answer.serial != task.serial:
        raise Refused("an answer to another task, or to an old round")
    if answer.leaving:
        raise Left("it leaves for good")
    for event in answer.events:
        note(agent, event)
    if answer.error:
        raise Refused(answer.error)
    if answer.withheld and task.kind in ("report", "evaluate"):
        return None
    tree = read_arrays(template, arrays, max_norm, "message")
    if answer.fresh:
        note(agent, "its state was gone: it started from the first one")
    return tree
