"""Recurrent layers, all steps in one launch."""
