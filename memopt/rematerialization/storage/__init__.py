"""Other forms in which results can be kept: smaller ones, or on the host."""
