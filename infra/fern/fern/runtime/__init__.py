"""The system on this machine: what runs, in which order, and how to tell that it is well."""
