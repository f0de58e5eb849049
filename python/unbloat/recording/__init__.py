"""From a symptom to a capture: what to type on each system, and on Linux the recording itself."""
