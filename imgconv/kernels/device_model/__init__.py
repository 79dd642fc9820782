"""Device models: predict the seconds of a launch on each kind of device from its work."""
