"""The built-in data: text that is shipped or generated, the same on every machine.

The data serves twice: `phases/cognate` trains on the train slice, and a run without data of its own
measures fitness on the other slices. No module here imports torch.
"""
