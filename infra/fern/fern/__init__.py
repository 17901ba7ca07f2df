"""Everything a service must not know: local servers, stand-ins, and the `fern` command that runs them."""
