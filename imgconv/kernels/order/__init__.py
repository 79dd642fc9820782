"""Sorts rows: the templates of order.cl and merge.cl."""
