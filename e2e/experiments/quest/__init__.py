"""Experiments that show why the system is built as it is: other designs and ours, side by side, against the same faults."""
