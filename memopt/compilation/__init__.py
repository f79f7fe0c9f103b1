"""Hot loops of memopt itself as machine code: compiled by numba, and kept for other processes."""
