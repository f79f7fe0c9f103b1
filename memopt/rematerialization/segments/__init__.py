"""Checkpointing by segments: what lies idle is kept at cuts, and recomputed between them."""
