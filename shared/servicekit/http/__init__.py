"""What the HTTP side of every service shares: the application and its layers, problems, the API document, operators' routes."""
