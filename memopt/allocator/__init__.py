"""TensorFlow's allocator: does it find room for a step, and in which order does it."""
