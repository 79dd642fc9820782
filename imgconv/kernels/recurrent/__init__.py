"""Recurrent layers: the template of recurrent.cl."""
