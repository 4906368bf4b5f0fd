"""Verifiers, which judge if a generated reply is right; they do not import torch."""
