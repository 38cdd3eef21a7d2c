"""Wrappers around any algorithm."""
