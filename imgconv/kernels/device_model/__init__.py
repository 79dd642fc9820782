"""Cost models: the predicted time of a launch on each kind of device."""
