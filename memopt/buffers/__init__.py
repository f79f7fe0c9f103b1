"""Memory as TensorFlow's runtime uses it: which tensors share buffers, scratch memory, loops."""
