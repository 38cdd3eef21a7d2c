"""The constants of the two convergence theorems, and the beta, step-sizes and B they prescribe."""

from fedpg.theory.constants import Constants, complete
from fedpg.theory.prescription import ERRATA, Prescription, initial_batches, prescribe

__all__ = ["ERRATA", "Constants", "Prescription", "complete", "initial_batches", "prescribe"]
