"""Experiments that compare designs: alternatives and ours, with the same faults."""
