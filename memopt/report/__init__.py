"""Reports of what was done and measured; nothing is computed here."""
