"""Running a graph for real: with the original's variables, or measured in a fresh process."""
