"""Measurements. Each script checks its results first, warms up, repeats, and names the device and its driver."""
