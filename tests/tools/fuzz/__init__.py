"""Generators of what strangers and chance may give imgconv, each with an oracle.

    python -m tests.tools.fuzz models --count 1000 --seed 7    # damaged and made-up ONNX models
    python -m tests.tools.fuzz graphs --count 1000 --seed 7    # random networks of every operator, against onnxruntime
    python -m tests.tools.fuzz streams --count 1000 --seed 7   # their like with states that stay on the device
    python -m tests.tools.fuzz plans --count 1000 --seed 7     # their like of open sizes, on several sizes
    python -m tests.tools.fuzz quantized --count 1000 --seed 7     # quantised networks, each level against float64
    python -m tests.tools.fuzz cuttings --count 1000 --seed 7     # networks cut out of real files, against onnxruntime
    python -m tests.tools.fuzz files --count 1000 --seed 7     # compiled files, tuning and precision files
    python -m tests.tools.fuzz pictures --count 1000 --seed 7     # damaged pictures, odd sizes and modes
    python -m tests.tools.fuzz kills --count 200 --seed 7         # processes killed while they load, save, tune, run

Case n of a run has the seed S + n, so that `--seed S+n --count 1` makes it again. A case runs in a process of its own
kind: one that crashes, hangs or takes too much memory is found too.

__main__.py     runs cases in a worker process, and makes what fails smaller
case.py         random steps, of which some can be left out
every_case.py   the cases of every operator, by opset
compared.py     a model beside onnxruntime, and who is wrong if they differ
graphs.py, streams.py, plans.py, quantized.py, cuttings.py, models.py, files.py, pictures.py, kills.py
"""
