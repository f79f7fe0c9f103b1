"""Rematerialization by the planner: a network as a cost graph, and a plan as copies in a line."""
