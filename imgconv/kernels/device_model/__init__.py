"""Device models: seconds of a launch on each kind of device, by its work."""
