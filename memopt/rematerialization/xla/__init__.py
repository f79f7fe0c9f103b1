"""XLA's walk along a sequence: over the limit, something is recomputed or stored."""
