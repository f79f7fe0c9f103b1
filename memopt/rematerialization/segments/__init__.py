"""Checkpointing by segments: what lies idle is kept at cuts, and made again between them."""
