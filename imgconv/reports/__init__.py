"""What people read about a model: numbers, tables, pages. A line in here may run a model, and changes none.

profile.py      every launch timed beside the device's peaks (peaks.py); trace.py and profile_page.py show it
verify.py       every layer beside onnxruntime's; verify_page.py shows it
results.py      what an output shows
terminal.py     tables and progress on a terminal
"""
