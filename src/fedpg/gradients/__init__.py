"""Estimators of the policy gradient, and the exact one."""
