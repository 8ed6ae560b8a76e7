"""Properties that hold for any input, checked with hypothesis; each file is named after the unit tests it belongs to."""
