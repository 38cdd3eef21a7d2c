"""`python -m fedpg`."""

from fedpg.cli import run

run()
