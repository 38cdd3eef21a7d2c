"""Experiments that end in a table and a picture."""
