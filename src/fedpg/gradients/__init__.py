"""Estimators of the policy gradient, from trajectories (`batch`) or visit counts (`tabular`), and the exact gradient (`exact`)."""
