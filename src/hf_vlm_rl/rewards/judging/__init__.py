"""Rewards that a model on a server gives: it sees the row's images."""
