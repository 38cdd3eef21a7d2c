"""The command: one file per verb, imported only when it is called."""

import importlib
import os
import sys
import threading
from typing import NoReturn

from fedpg import cache
from fedpg.errors import UserError, choose

NO_CACHE = "--no-cache"
"""A flag of every verb."""
UNSTOPPABLE = {"trial", "connection", "training"}
"""Names of the threads in which `fedpg join` and `fedpg serve` run environments and compiled programs."""
VERBS = {
    "train": "one run: environment, algorithm, agents, seeds; writes a run folder, continues it with --resume",
    "evaluate": "policies in their own, in unseen or in other environments: mean, worst agent, quantiles, a matrix",
    "play": "film a policy in every agent's environment, side by side: MP4 and GIF",
    "report": "one HTML page about one or more runs, to open without a network",
    "personalize": "a policy of its own for every agent, from a common one and few trajectories",
    "export": "a policy as files for others: params, ONNX, model card, video",
    "sweep": "lists of settings, compared on the same seeds in one table",
    "reproduce": "a table or figure of the paper, or one of ours, beside the published numbers",
    "demo": "does it pay to federate? eight agents with little data: a table, a picture and a film",
    "serve": "lead a federation between machines, on Flower",
    "join": "take part in a federation as an agent with a private environment",
    "policy": "fetch the newest policy of a federation with a key that can only read",
    "cert": "the keys of a federation: the server's certificate, and a key pair for every agent",
    "track": "send a run folder to TensorBoard, Weights & Biases or MLflow afterwards",
    "theory": "the theorems' beta, step-sizes and B for given constants",
    "bench": "how fast this machine trains, compiles and starts, beside named peers measured in the same run",
    "doctor": "what is installed, which devices there are, how to install what is missing",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one verb; returns the exit code. A `UserError`, and a file that cannot be used, is one line on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print("usage: fedpg VERB [flags]\n\nOne policy for many different environments, learned without moving a trajectory.\n")
        for verb, does in VERBS.items():
            print(f"  {verb:11} {does}")
        print("\nfedpg VERB --help explains a verb.")
        print(f"{NO_CACHE}, a flag of every verb, neither uses nor keeps compiled programs; fedpg doctor says where they are.")
        return 0
    try:
        verb = choose("verb", argv[0], VERBS)
        if NO_CACHE in argv:
            os.environ[cache.VARIABLE] = cache.OFF
        if (problem := cache.turn_on()) is not None:
            print(f"fedpg: {problem}", file=sys.stderr)
        return importlib.import_module(f"fedpg.cli.{verb}").main([word for word in argv[1:] if word != NO_CACHE])
    except UserError as error:
        return _refused(str(error))
    except OSError as error:
        if error.filename is None:  # of no file: it cannot be corrected by the user
            raise
        return _refused(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        print("fedpg: stopped", file=sys.stderr)
        return 130


def _refused(why: str) -> int:
    """Prints why a verb was refused on one line, also if a name in it has several; returns the exit code."""
    print("fedpg: " + " ".join(why.splitlines()), file=sys.stderr)
    return 2


def run() -> NoReturn:
    """The command as a process. It also ends while an environment or a compiled program still runs, which cannot be told to stop."""
    code = main()
    if UNSTOPPABLE.intersection(thread.name for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the interpreter would end the thread in the middle of compiled code, and abort
    sys.exit(code)
