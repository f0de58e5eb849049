"""What a lab leaves behind, removed."""
