"""The terminal: where results go, and what shows that work is going on."""
