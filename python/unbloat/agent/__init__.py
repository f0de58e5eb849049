"""`unbloat agent`: the front of the program unbloat-agent. It asks it, and shows what it answers; it changes nothing itself."""
