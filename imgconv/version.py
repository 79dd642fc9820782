"""The version of imgconv: of the package, and of its compiled files."""

VERSION = "0.1.0"
