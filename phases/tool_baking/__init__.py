"""Phase 6: tools and personas become weights, in cycles."""
