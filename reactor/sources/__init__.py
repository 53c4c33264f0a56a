"""Each source turns one part of the outside into facts; none knows another."""
