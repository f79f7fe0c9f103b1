"""The parts of rematerialization: numbers only, but for what makes the operations in the graph."""
