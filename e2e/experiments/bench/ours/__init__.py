"""Our side of each stage that is no HTTP server: the parts of the services, wired as their processes wire them."""
