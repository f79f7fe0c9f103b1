"""Kernels measured alone: their scratch memory, which buffers they share or take over, times."""
