"""`reproduce fairness`: how several flows with the same control share a bottleneck, and an upload beside a download."""
