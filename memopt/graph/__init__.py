"""The graph: nodes and edges, the files' form of it, the rewriter and the invariants."""
