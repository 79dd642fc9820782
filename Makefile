# make demo    set up .venv and enlarge examples/demo.png        make lint    ruff and mypy
# make test    set up .venv and run the tests                    make clean   remove what these made
# make bench   set up .venv and run every benchmark on one network
# make package build the source distribution and the wheel into dist, and check them with twine
# make docs    build the documentation into build/site, and fail at the first warning
# make fuzz    attack it with drawn models, files, pictures, networks and killed processes
# make adreno  every kernel variant and ten networks as Adreno machine code in a simulator; needs Mesa's compiler; an hour
# make oclgrind  every kernel variant under a simulator that reports reads outside of memory; over an hour
# make faults  plant known faults one at a time, and see whether the tests notice; hours
# make native  build libimgconv and imgconv-run into build/installed, with CMake; see docs/native.md
# make demo-native     the demo by imgconv-run: the same picture
# make native-models   the player on every model: minutes
# make native-check    the player under sanitizers, and 100,000 damaged files: minutes
# make native-arm64    the player on emulated 64-bit ARM; installs a cross compiler and qemu by apt-get
# make android   the sample app's Java, resources and boxes, without Android; needs aapt and a JDK; see docs/android.md
#
# PYTHON: the interpreter to set up .venv with. PYTEST: further arguments for pytest; '-m models' runs the tests on whole
# models, which are left out otherwise because they take minutes.

PYTHON ?= python3
PYTEST ?=
FUZZ ?= --minutes 10
FAULTS ?=
ADRENO ?=

VENV := .venv
BIN := $(VENV)/bin
# Runs a command of the shell once no other make in this folder does: two that install at once leave .venv broken.
ALONE = $(PYTHON) -c 'import fcntl, subprocess, sys; file = open("setup.cfg", "r+"); fcntl.flock(file, fcntl.LOCK_EX); \
  sys.exit(subprocess.call(["sh", "-c", sys.argv[1]], pass_fds=[file.fileno()]))'

# With it set, each of the hundred processes that the tests start compiles imgconv's modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test bench fuzz adreno oclgrind faults docs package native demo-native native-models native-check native-arm64 \
  android lint clean

demo: $(VENV)/installed-cpu
	$(BIN)/python -m examples.demo

# A process for each core, at most four: each has a driver and models in memory.
test: $(VENV)/installed-cpu $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal $(PYTEST)

# The last one needs a build of Mesa, and says which.
bench: $(VENV)/installed-cpu $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.model squeezenet --repeat 5
	$(BIN)/python -m benchmarks.kernel squeezenet --repeat 5
	$(BIN)/python -m benchmarks.memory --repeat 5
	$(BIN)/python -m benchmarks.peers squeezenet --repeat 5
	-$(BIN)/python -m benchmarks.adreno squeezenet --summary

docs: $(VENV)/installed-docs
	$(BIN)/mkdocs build --strict --site-dir build/site

package: $(VENV)/installed-package
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*

# FUZZ: how many cases of each kind, for how long and from which seed: make fuzz FUZZ='--minutes 60 --seed 5000'.
# The kinds are targets of their own, so that make --jobs 2 attacks in two ways at once.
FUZZ_KINDS := kills models files pictures graphs streams plans quantized cuttings
fuzz: $(FUZZ_KINDS:%=fuzz-%)
$(FUZZ_KINDS:%=fuzz-%): fuzz-%: $(VENV)/installed-cpu $(VENV)/installed-test
	$(BIN)/python -m tests.tools.fuzz $* $(FUZZ)

# ADRENO: make adreno ADRENO='forms --gpu 630,650,740 --float16 1'. Without a build of Mesa it says which one is needed.
adreno: $(VENV)/installed-cpu $(VENV)/installed-test
	$(BIN)/python -m benchmarks.adreno_simulator $(ADRENO)

oclgrind: $(VENV)/installed-cpu $(VENV)/installed-test
	$(BIN)/python -m tests.tools.oclgrind

# FAULTS: make faults FAULTS='--only 3 17', or --likely for the tests that are likely to notice only.
faults: $(VENV)/installed-cpu $(VENV)/installed-test
	$(BIN)/python -m tests.tools.faults $(FAULTS)

native:
	cmake -S native -B build/native -DCMAKE_INSTALL_PREFIX="$(CURDIR)/build/installed"
	cmake --build build/native --target install

demo-native: native $(VENV)/installed-cpu
	$(BIN)/python -m examples.demo_native

native-models: $(VENV)/installed-cpu $(VENV)/installed-test
	$(BIN)/python -m pytest tests/native/check_models.py $(PYTEST)

native-check: $(VENV)/installed-cpu $(VENV)/installed-test
	$(BIN)/python -m pytest -s tests/native/check_sanitizers.py $(PYTEST)

native-arm64: $(VENV)/installed-cpu
	$(BIN)/python -m tests.native.check_arm64 --install

# Android's classes of API level 23: Debian has them in unstable only. Without them, tests are skipped and say so.
android: $(VENV)/installed-cpu $(VENV)/installed-test
	-test -e build/android/root || $(BIN)/python -m tests.tools.debian build/android/root sid amd64 libandroid-23-java
	$(BIN)/python -m pytest -rs tests/native/test_android.py $(PYTEST)

# By flatc 2.0.8, Debian's flatbuffers-compiler. The header works with later versions of FlatBuffers too, so that what
# demands the same one is left out.
native/generated/model_generated.h: imgconv/stored/model.fbs
	flatc --cpp -o $(@D) $<
	sed -i '/^.. Ensure the included/,/^ *"Non-compatible/d' $@

lint: $(VENV)/installed-test $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info demo-output.png .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find imgconv models examples benchmarks tests -name __pycache__ -prune -exec rm -rf {} +

# One stamp for each extra of setup.cfg: newer than setup.cfg where what it asks for is installed. "cpu", the OpenCL
# driver for CPUs, is empty except on x86-64 Linux. There it is installed even beside another driver, so that every
# machine runs the same tests on it. pip must not run twice at once, so that the others wait for "cpu". Python compiles
# what it imports; pip would compile every module of every package, for 13 seconds.
$(VENV)/installed-test $(VENV)/installed-dev $(VENV)/installed-bench: $(VENV)/installed-cpu
$(VENV)/installed-dev $(VENV)/installed-bench: | $(VENV)/installed-test
$(VENV)/installed-%: setup.cfg pyproject.toml | $(BIN)/python
	@$(ALONE) 'test $@ -nt setup.cfg -a $@ -nt pyproject.toml && exit; \
	  echo "installing imgconv[$*] into $(VENV) ..." && \
	  $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable ".[$*]" && touch $@'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "imgconv needs Python 3.10 or newer as '$(PYTHON)'; install it, or name another: make PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(ALONE) 'test -x $@ || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }' || { \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }
