"""`python end_with_parent.py SIGNAL COMMAND ...` becomes COMMAND, which gets SIGNAL when the process that started it dies in any way.

It is a program of its own because a process that has loaded JAX must not run Python between fork and exec.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(sys.argv[1]))
    if os.getppid() != parent:  # the parent died before the call
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
