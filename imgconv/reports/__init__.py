"""Reports about a model, for people: numbers, tables, pages. They may run a model, but do not change it.

profile.py      times every launch and compares it with the device's peaks (peaks.py), also as a page; trace.py shows it
verify.py       compares every layer with onnxruntime's; verify_page.py shows it
terminal.py     tables and progress on a terminal
"""
