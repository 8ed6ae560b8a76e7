"""Helpers of the tests: running envcheck, staged machines, local indexes, images, fake drivers."""
