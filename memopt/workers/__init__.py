"""Processes, of this machine or a cluster, that do orders: what fleets and long searches run on."""
