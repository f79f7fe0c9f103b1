"""The simulated timeline: a virtual scheduler runs a graph on described devices, in numbers."""
