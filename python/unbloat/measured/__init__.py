"""Results that `unbloat measure --keep` kept."""
