"""Winograd's filtering in two dimensions."""
