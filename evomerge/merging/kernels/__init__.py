"""Inner loops of merges: tensors in row chunks, operations fused into one pass, buffers reused."""
