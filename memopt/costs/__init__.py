"""What a graph costs: sizes of tensors and arithmetic of operations."""
