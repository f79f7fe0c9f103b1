"""How tensors are swapped: what, when, by which operations; used by the pass `swapping`."""
