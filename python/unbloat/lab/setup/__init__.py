"""What a lab sets up: namespaces, routes, TCP settings."""
