"""memopt inside TensorFlow: a rewriter of every training step that Grappler optimizes."""
