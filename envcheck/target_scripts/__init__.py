"""Scripts for the target interpreter: standard library alone, so they run where envcheck is not installed."""
