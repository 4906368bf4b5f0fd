"""Models as files and tensors, without any knowledge of runs or measures."""
