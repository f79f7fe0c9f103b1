"""Steps that XLA compiles: what its compiler says they need, and budgets that it is held to."""
