"""The kernels for NVIDIA GPUs: CUDA C, compiled by NVRTC, and an XLA FFI handler in Python that launches them."""

import ctypes
import functools
import importlib.util
import math
import os
import re
import threading
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_uint32, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedpg.native.folder import SOURCES, kept, name_of

NVRTC = "libnvrtc.so"
OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=false")
TILE, LEAN_THREADS, MOST_TILES = 32, 128, 16
"""Lanes of a tile; threads of a block that uses no shared memory; the most tiles of a block that does."""
SCRATCH = True
"""Whether the kernel of visits has a further result as its working memory."""
AXES, OPERANDS, RESULTS = 8, 5, 6
ATTRIBUTES = {"horizon": c_int64, "discount": c_float, "limit": c_float}
"""Numbers that kernels are given."""
PER_BLOCK, PER_PROCESSOR, RESERVED, MAJOR, MINOR = 97, 81, 111, 75, 76
"""Attributes of a device: the most shared memory of a block and of a multiprocessor, what the driver keeps per block, its architecture."""
SHARED_LIMIT = 8
"""Attribute of a kernel: how much shared memory it may ask for."""


class KernelError(RuntimeError):
    """NVRTC or the driver refused something."""


# ---- libraries


def _folders_of_wheels() -> list[Path]:
    """The folders of the libraries that pip installs for CUDA."""
    found = importlib.util.find_spec("nvidia")
    roots = list(found.submodule_search_locations or []) if found else []
    return [folder for root in roots for folder in sorted(Path(root).glob("*/lib")) if folder.is_dir()]


@functools.cache
def nvrtc() -> ctypes.CDLL | None:
    """The library that compiles CUDA C; None if it is not installed. That of JAX's own CUDA comes first."""
    wheels = [str(path) for folder in _folders_of_wheels() for path in sorted(folder.glob(f"{NVRTC}.*")) if ".alt" not in path.name]
    roots = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    system = [str(Path(root) / "lib64" / NVRTC) for root in roots if root]
    for name in (*wheels, *system, f"{NVRTC}.13", f"{NVRTC}.12", NVRTC):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@functools.cache
def driver() -> ctypes.CDLL:
    """The driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *args: Any) -> None:
    """Calls a function of the driver."""
    code = getattr(driver(), name)(*args)
    if code:
        text = c_char_p()
        driver().cuGetErrorString(code, byref(text))
        raise KernelError(f"{name}: {(text.value or b'unknown error').decode()}")


def _attribute(device: int, number: int) -> int:
    value = c_int()
    _call("cuDeviceGetAttribute", byref(value), number, device)
    return value.value


@functools.cache
def why_not() -> str | None:
    """Why there is no kernel; None if there is one."""
    if not any(device.platform == "gpu" and "nvidia" in device.device_kind.lower() for device in jax.devices()):
        return "no NVIDIA GPU"
    if nvrtc() is None:
        return "NVRTC is missing: pip install -U 'jax[cuda13]'"
    try:
        driver()
        module_of(visits(1, 1, False, False), _architecture(0))
    except (OSError, KernelError) as error:
        return str(error).splitlines()[0]
    return None


# ---- compiling


def _architecture(device: int) -> str:
    return f"sm_{_attribute(device, MAJOR)}{_attribute(device, MINOR)}"


class Program(NamedTuple):
    """A kernel for one shape of tables.

    Attributes:
        name: of its function and its source file.
        macros: the options that choose the shape.
        words: words of shared memory of one lane, as in the source; 0: it uses none.
        ranks: axes of the operands of one lane.
    """

    name: str
    macros: tuple[str, ...]
    words: int
    ranks: tuple[int, ...]

    def source(self) -> str:
        """The CUDA C."""
        return "".join((SOURCES / file).read_text() for file in ("common.h", "tiles.h", f"{self.name}.cu"))


def visits(states: int, actions: int, valued: bool, shared: bool) -> Program:
    """The kernel of visits. Its operands: key, start, policy, transition, reward."""
    cells = states * actions
    words = states * (actions - 1) + max(cells * states | 1, 3 * cells + states if valued else 0) + 2 * (cells | 1) if shared else 0
    return Program("visits", _macros(STATES=states, ACTIONS=actions, VALUED=valued, SHARED=shared), words, (1, 0, 2, 3, 2))


def score(states: int, actions: int, weighted: bool) -> Program:
    """The kernel of policy gradients. Its operands: logits, coefficient and, if `weighted`, the behaviour's logits and visits."""
    used = 4 if weighted else 2
    return Program("score", _macros(STATES=states, ACTIONS=actions, WEIGHTED=weighted), used * (states * actions | 1), (2,) * used)


def _macros(**values: int) -> tuple[str, ...]:
    return tuple(f"-D{name}={int(value)}" for name, value in values.items())


def compile_to(kind: str, source: str, *options: str) -> bytes:
    """Machine code ("CUBIN") or assembly ("PTX") of CUDA C."""
    lib, program = nvrtc(), c_void_p()

    def call(name: str, *args: Any) -> None:
        code = getattr(lib, name)(*args)
        if code:
            size = c_size_t()
            lib.nvrtcGetProgramLogSize(program, byref(size))
            log = ctypes.create_string_buffer(size.value)
            lib.nvrtcGetProgramLog(program, log)
            raise KernelError(f"{name} failed with {code}: {log.value.decode()}")

    call("nvrtcCreateProgram", byref(program), source.encode(), b"fedpg.cu", 0, None, None)
    try:
        given = [option.encode() for option in (*OPTIONS, *options)]
        call("nvrtcCompileProgram", program, len(given), (c_char_p * len(given))(*given))
        size = c_size_t()
        call(f"nvrtcGet{kind}Size", program, byref(size))
        code = ctypes.create_string_buffer(size.value)
        call(f"nvrtcGet{kind}", program, code)
        return code.raw
    finally:
        lib.nvrtcDestroyProgram(byref(program))


@functools.cache
def module_of(program: Program, architecture: str) -> bytes:
    """The machine code of a kernel for an architecture."""
    major, minor = c_int(), c_int()
    nvrtc().nvrtcVersion(byref(major), byref(minor))
    source, options = program.source(), [f"--gpu-architecture={architecture}", *program.macros]
    name = name_of(source, str((major.value, minor.value)), *OPTIONS, *options) + ".cubin"
    return kept(name, lambda path: path.write_bytes(compile_to("CUBIN", source, *options)) and None).read_bytes()


# ---- XLA's side: xla/ffi/api/c_api.h


class Buffer(Structure):
    _fields_ = [("size", c_size_t), ("more", c_void_p), ("type", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64))]


class Scalar(Structure):
    _fields_ = [("type", c_int), ("value", c_void_p)]


class Span(Structure):
    _fields_ = [("text", c_void_p), ("length", c_size_t)]


class Arguments(Structure):
    _fields_ = [("size", c_size_t), ("more", c_void_p), ("count", c_int64), ("types", c_void_p), ("values", POINTER(POINTER(Buffer)))]


class Attributes(Structure):
    _fields_ = [
        ("size", c_size_t), ("more", c_void_p), ("count", c_int64), ("types", c_void_p), ("names", POINTER(POINTER(Span))),
        ("values", POINTER(POINTER(Scalar))),
    ]  # fmt: skip


class CallFrame(Structure):
    _fields_ = [
        ("size", c_size_t), ("more", c_void_p), ("api", POINTER(c_void_p)), ("context", c_void_p), ("stage", c_int),
        ("arguments", Arguments), ("results", Arguments), ("attributes", Attributes),
    ]  # fmt: skip


class Version(Structure):
    _fields_ = [("size", c_size_t), ("more", c_void_p), ("major", c_int), ("minor", c_int)]


class Metadata(Structure):
    _fields_ = [("size", c_size_t), ("version", Version), ("traits", c_uint32)]


class Extension(Structure):
    _fields_ = [("size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", POINTER(Metadata))]


class ErrorCreate(Structure):
    _fields_ = [("size", c_size_t), ("more", c_void_p), ("message", c_char_p), ("code", c_int)]


class StreamGet(Structure):
    _fields_ = [("size", c_size_t), ("more", c_void_p), ("context", c_void_p), ("stream", c_void_p)]


METADATA, INTERNAL = 1, 13
HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(CallFrame))
API_CALL = ctypes.CFUNCTYPE(c_void_p, c_void_p)


@functools.cache
def _api() -> tuple[tuple[int, int], dict[str, int]]:
    """The version of XLA's interface, and where its functions stand in the table of pointers, from the header that comes with jaxlib."""
    header = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
    version = tuple(int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", header)[1]) for part in ("MAJOR", "MINOR"))
    names = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((XLA_FFI_\w+)\);", header)
    # In front of them: two words, the version (three words), and a pointer.
    return version, {name: 6 + place for place, name in enumerate(names)}


def _api_function(frame: CallFrame, name: str) -> Any:
    return API_CALL(frame.api[_api()[1][name]])


# ---- launching


class Job(Structure):
    """The parameters of a kernel, as in tiles.h."""

    _fields_ = [
        ("operand", c_void_p * OPERANDS), ("result", c_void_p * RESULTS), ("stride", (c_int64 * AXES) * OPERANDS), ("dims", c_uint * AXES),
        ("lanes", c_uint), ("one", c_uint), ("axes", c_int), ("horizon", c_int), ("discount", c_float),
        ("limit", c_float),
    ]  # fmt: skip


def joined(lengths: list[int], strides: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Leading axes and the strides of every operand, with as few axes as possible."""
    dims: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, length in enumerate(lengths):
        if length == 1:
            continue
        now = [each[axis] for each in strides]
        if dims and all(step[-1] == stride * length for step, stride in zip(steps, now, strict=True)):
            dims[-1] *= length
            for step, stride in zip(steps, now, strict=True):
                step[-1] = stride
        else:
            dims.append(length)
            for step, stride in zip(steps, now, strict=True):
                step.append(stride)
    return dims or [1], [step or [0] for step in steps]


def layout(results: tuple[int, ...], operands: list[tuple[int, ...]], ranks: tuple[int, ...]) -> tuple[int, list[int], list[list[int]]]:
    """The number of lanes, and their joined axes and strides, from the shapes of the first result (a table) and of the operands."""
    lengths = list(results[:-2])
    strides = []
    for dims, rank in zip(operands, ranks, strict=True):
        leading, step, own = dims[: len(dims) - rank], math.prod(dims[len(dims) - rank :]), []
        for given in reversed(leading):
            own.append(0 if given == 1 else step)
            step *= given
        strides.append(own[::-1])
    return math.prod(lengths), *joined(lengths, strides)


class Kernel:
    """The kernel of one shape, loaded on every device that asks for it, and its handler."""

    def __init__(self, program: Program) -> None:
        self._program, self._bytes = program, 4 * TILE * program.words
        self._loaded: dict[int, tuple[Any, int]] = {}
        self._layouts: dict[Any, tuple[int, list[int], list[list[int]]]] = {}
        self._lock = threading.Lock()
        self.handler = HANDLER(self._handle)

    def _handle(self, pointer: Any) -> int | None:
        frame = pointer.contents
        if frame.more:
            extension = Extension.from_address(frame.more)
            if extension.type == METADATA:
                metadata = extension.metadata.contents
                metadata.version = Version(ctypes.sizeof(Version), None, *_api()[0])
                metadata.traits = 0
                return None
        try:
            self._launch(frame)
        except Exception as error:  # what a handler raises would be lost
            args = ErrorCreate(ctypes.sizeof(ErrorCreate), None, f"fedpg {self._program.name}: {error}".encode(), INTERNAL)
            return _api_function(frame, "XLA_FFI_Error_Create")(ctypes.addressof(args))
        return None

    def _launch(self, frame: CallFrame) -> None:
        stream = StreamGet(ctypes.sizeof(StreamGet), None, frame.context, None)
        if _api_function(frame, "XLA_FFI_Stream_Get")(ctypes.addressof(stream)):
            raise KernelError("XLA gave no stream")
        self.launch(self.job(frame), c_void_p(stream.stream))

    def job(self, frame: CallFrame) -> Job:
        """The parameters of the kernel for a call."""
        given = [frame.arguments.values[k].contents for k in range(frame.arguments.count)]
        results = [frame.results.values[k].contents for k in range(frame.results.count)]
        shapes = tuple(tuple(each.dims[: each.rank]) for each in (results[0], *given))
        if shapes not in self._layouts:
            self._layouts[shapes] = layout(shapes[0], list(shapes[1:]), self._program.ranks)
        lanes, dims, strides = self._layouts[shapes]
        job = Job(lanes=lanes, one=1, axes=len(dims))
        job.dims[: len(dims)] = dims
        for k, step in enumerate(strides):
            job.operand[k] = given[k].data
            job.stride[k][: len(step)] = step
        for k, result in enumerate(results):
            job.result[k] = result.data
        for k in range(frame.attributes.count):
            text, value = frame.attributes.names[k].contents, frame.attributes.values[k].contents.value
            name = ctypes.string_at(text.text, text.length).decode()
            setattr(job, name, ATTRIBUTES[name].from_address(value).value)
        return job

    def launch(self, job: Job, stream: c_void_p) -> None:
        """Launches the kernel on a stream, in its context."""
        context = c_void_p()
        _call("cuStreamGetCtx", stream, byref(context))
        _call("cuCtxPushCurrent_v2", context)
        try:
            function, tiles = self._function(context.value)
            threads = tiles * TILE
            blocks = -(-job.lanes // threads)
            parameters = (c_void_p * 1)(ctypes.addressof(job))
            _call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, c_uint(tiles * self._bytes), stream, parameters, None)
        finally:
            _call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def _function(self, context: int) -> tuple[Any, int]:
        """The kernel in the current context, and how many tiles a block has."""
        if context not in self._loaded:
            with self._lock:
                device, module, function = c_int32(), c_void_p(), c_void_p()
                _call("cuCtxGetDevice", byref(device))
                _call("cuModuleLoadData", byref(module), module_of(self._program, _architecture(device.value)))
                _call("cuModuleGetFunction", byref(function), module, self._program.name.encode())
                tiles = LEAN_THREADS // TILE
                if self._bytes:
                    tiles = best_tiles(self._bytes, *(_attribute(device.value, number) for number in (PER_BLOCK, PER_PROCESSOR, RESERVED)))
                    _call("cuFuncSetAttribute", function, SHARED_LIMIT, tiles * self._bytes)
                self._loaded[context] = function, tiles
        return self._loaded[context]


def best_tiles(tile: int, per_block: int, per_processor: int, reserved: int) -> int:
    """Tiles of a block, each of so many bytes, with which most of them are on a multiprocessor at a time; the least of several."""
    possible = [n for n in range(1, MOST_TILES + 1) if n * tile <= per_block]
    return max(possible, key=lambda n: (n * min(per_processor // (n * tile + reserved), 32), -n))


@functools.cache
def fits(program: Program) -> bool:
    """Whether at least four tiles fit into shared memory: with fewer a multiprocessor idles."""
    return 4 * 4 * TILE * program.words <= min(_attribute(device, PER_BLOCK) for device in range(_devices()))


def eager(states: int, actions: int, valued: bool, horizon: int) -> bool:
    """Whether rows are made before they are visited, in shared memory: there are few, and they fit."""
    return states * actions <= 2 * horizon and fits(visits(states, actions, valued, True))


def scores(states: int, actions: int, weighted: bool) -> bool:
    """Whether there is a kernel of policy gradients for this shape."""
    return fits(score(states, actions, weighted))


def target(states: int, actions: int, valued: bool, eager: bool) -> str:
    """The name under which XLA knows the kernel of visits for a shape."""
    return _target(visits(states, actions, valued, eager))


def score_target(states: int, actions: int, weighted: bool) -> str:
    """The name under which XLA knows the kernel of policy gradients for a shape."""
    return _target(score(states, actions, weighted))


@functools.cache
def _target(program: Program) -> str:
    name = f"fedpg_{program.name}_{name_of(program.source(), *program.macros)}"
    if name not in _KEPT:
        _KEPT[name] = Kernel(program)
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(_KEPT[name].handler), platform="CUDA")
    return name


_KEPT: dict[str, Kernel] = {}
"""The kernels that XLA knows: their handlers must not be collected."""


def _devices() -> int:
    count = c_int()
    _call("cuDeviceGetCount", byref(count))
    return count.value
