"""SavedModels in and out: the functions in them rewritten, everything else as it was."""
