"""What a launch takes on each kind of device."""
