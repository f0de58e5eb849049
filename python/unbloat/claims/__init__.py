"""The papers' claims: run, measured, judged, shown."""
