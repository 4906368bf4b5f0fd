"""Phase 8: a smaller model of the same family, distilled from a given one."""
