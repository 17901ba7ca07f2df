"""The local system: which processes run, in which order they start, and how to tell that they are healthy."""
