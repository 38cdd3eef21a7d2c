"""`python -m fedpg`."""

import sys

from fedpg.cli import main

sys.exit(main())
