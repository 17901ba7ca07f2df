"""A quick start: the message types of google-cloud-pubsub without its clients.

Importing `google.pubsub_v1` also imports two clients, their transports and the libraries for credentials and HTTP below them,
which is half of the time that the emulator would need to start. A process that only serves has no use for them.
"""

import sys
from importlib.util import find_spec, module_from_spec


def skip_clients() -> None:
    """Stand an empty package in for `google.pubsub_v1`, so that only its sub-modules are loaded. For processes that are ours
    alone: nobody can use the clients afterwards."""
    spec = find_spec("google.pubsub_v1")
    if spec is not None and spec.name not in sys.modules:
        sys.modules[spec.name] = module_from_spec(spec)
