"""Loops that keep the state of some of their turns, and run the others again for gradients."""
