"""The report page: one file that shows where a step's memory goes and why; no computing."""
