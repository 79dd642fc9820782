"""Exceptions that a signal handler raises in the middle of a run or of frames under way."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from test_process_end import ended

from imgconv.cl.device import DeviceInfo

ROUNDS = 250
CODE = """
import random, signal

class Stop(Exception): pass

def stop(*_):
    if armed:
        raise Stop

def run():
    return model.run(x)

def submit():
    for frame in [model.submit(x, 2) for _ in range(4)]:
        outputs = frame.result()
    return outputs

def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

def assert_right(outputs):
    assert all((outputs[name] == expected[name]).all() for name in expected)

armed, draw = False, random.Random(0)
signal.signal(signal.SIGALRM, stop)
x['x'][...] = numpy.random.default_rng(0).normal(size=x['x'].shape)
expected = run()
going = BESIDE
def beside():
    while going:
        assert_right(submit())
other = threading.Thread(target=beside)
other.start()
usual = sorted(seconds(CALL) for _ in range(20))[10]
stopped = 0
for _ in range(ROUNDS):
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, usual))
        try:
            CALL()
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop:
        stopped += 1
    assert_right(run())
    assert_right(model.submit(x).result(timeout=60))
going = False
other.join()
assert stopped
print('right')
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no interval timers")
@pytest.mark.parametrize("call", ["run", "submit"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a thread that submits"])
def test_only_what_the_handler_raises_is_raised(device: DeviceInfo, tmp_path: Path, call: str, beside: bool) -> None:
    """The model still runs right afterwards, in other threads too, and the process ends."""
    code = CODE.replace("CALL", call).replace("BESIDE", str(beside)).replace("ROUNDS", str(ROUNDS))
    result = ended(device, tmp_path, code)
    assert (result.stdout, result.returncode) == ("right\n", 0), result.stderr
