"""Names of the nodes that recomputation adds to a graph, as Grappler gives them."""

COPY_PREFIX = "Recomputed/"
TRIGGER_PREFIX = "RecomputeTrigger/"
