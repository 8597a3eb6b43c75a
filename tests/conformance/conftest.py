"""Fixtures of the clauses over all classes."""

from .every import twins

__all__ = ["twins"]
