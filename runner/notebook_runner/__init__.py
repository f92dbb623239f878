"""Executes a notebook in a kernel of another container, compares its outputs and reports the verdict."""
