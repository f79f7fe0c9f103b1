"""Rematerialization on a graph: what may run twice, and the copies that a plan asks for."""
