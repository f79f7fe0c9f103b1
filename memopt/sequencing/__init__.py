"""Orders of execution that need little memory, and how a graph is made to keep to one."""
