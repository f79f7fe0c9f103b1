"""Microsoft's path algorithm: whole paths are cloned for those who read their ends."""
