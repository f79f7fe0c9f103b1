"""Many models rewritten within many budgets, by processes of this machine or of a cluster."""
