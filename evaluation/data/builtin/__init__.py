"""The built-in data: text that is shipped or generated, the same on every machine.

It serves twice: `phases/cognate` trains on the train slice, and a run that is given no data of its own
measures fitness on the other slices. Nothing here imports torch.
"""
