"""`python leash.py COMMAND ...` becomes COMMAND, and gets SIGTERM when the process that started it dies, however that happens.

A program of its own, because a process that has JAX in it must not run Python between fork and exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before it could be asked
        sys.exit(1)
    os.execv(sys.argv[1], sys.argv[1:])
