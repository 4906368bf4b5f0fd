"""Verifiers: programs that say whether a generated reply is right. No torch."""
