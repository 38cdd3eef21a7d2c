"""The Flower app that `fedpg serve` submits. The code is in the installed fedpg."""
