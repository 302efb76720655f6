"""A small training loop that can be killed at any moment and goes on bit by bit where it was."""

from theses.training.loop import History, fit

__all__ = ["History", "fit"]
