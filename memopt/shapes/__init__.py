"""What is known of tensors before a step runs: types, shapes, sizes, and small values."""
