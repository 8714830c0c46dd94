# Needs Python >= 3.11 and make. Each target makes the virtual environment it needs, once.
#   make demo    write, read, check, time and draw an elevation map of the Earth (examples/relief, output in demo-out/)
#   make test    lint, types and tests
#   make test-long    the tests that take long: sanitizers, distributions, benchmarks, torture, PTX
#   make test-torch    the tests that need PyTorch, which it installs without CUDA's libraries where there is no GPU
#   make test-lowest    some tests with the oldest packages that pyproject.toml allows
#   make test-gpu-driver    the GPU tests on real CuPy, KvikIO and RMM, without a GPU (4 minutes, Python 3.12); CUDA=12 for its wheels
#   make test-zarr     the suites of zarr-python, dask and xarray on gzarr, and tests of Icechunk (10 minutes, Python 3.12)
#   make coverage    the tests again, twice as slow, with a table of the lines that the tests miss
#   make docs    build the documentation site into site/, with warnings as errors
#   make bench   time gzarr beside its peers (docs/benchmarks.md; 15 to 25 minutes, 6 GB in .bench-cache)
#   make bench-loader    time gzarr.Loader beside its peers (docs/benchmarks-loader.md; 6 minutes, 3 GB in .bench-cache; Python 3.12)
#   make bench-images    time pyramids and filters beside their peers (docs/benchmarks-images.md; 15 minutes, 5 GB in .bench-cache; Python 3.12)
#   make torture    an hour of races, kills, full disks and interrupts, beside the peers (docs/reliability.md)
#   make gpu-check   on a machine with a GPU: tests, open questions, benchmarks; eight minutes at most
#   make gpu-check-on-driver    the same on a driver made of software, to see that it runs; its figures mean nothing
#   make PYTHON=python3.12 test    with another Python

PYTHON ?= python3

# Tests start many processes, which would compile all modules again where the environment forbids bytecode files. Freed
# memory of many threads is kept in few arenas of glibc. Files of tests go to memory where the system has a folder for
# that with 4 GB to spare, which takes half the time of system calls.
# Without malloc's limits that grow by themselves, a process of tests takes 1.7 GB instead of 2.5.
PYTEST = MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=1048576 MALLOC_TRIM_THRESHOLD_=4194304 PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(CURDIR)/.venv/pycache' .venv/bin/python -m pytest \
    --numprocesses=auto --dist=loadfile --no-loadscope-reorder $(IN_MEMORY)
IN_MEMORY = $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4e6 \
    {print "--basetemp=/dev/shm/pytest$(subst /,-,$(CURDIR)) -o tmp_path_retention_policy=failed"}')

.PHONY: demo test test-long test-torch test-lowest test-zarr coverage lint docs bench bench-loader bench-images torture gpu-check gpu-check-on-driver clean

demo: .venv-demo/ready
	.venv-demo/bin/python -m examples.relief

test: lint
	$(PYTEST) -m 'not long' --durations=25

test-long: .venv/ready
	$(PYTEST) -m long --durations=25

test-torch: .venv-torch/ready
	PYTHONDONTWRITEBYTECODE= .venv-torch/bin/python -m pytest $(OF_TORCH)

# TORCH=--full installs PyTorch as pip does.
OF_TORCH = tests/test_tensors.py tests/interop/test_tensors.py tests/interop/test_torch.py tests/interop/test_pipelines.py tests/examples/test_training.py

# The extras that need neither CUDA nor PyTorch, each in the oldest version that is allowed, and the newest pytest.
LOWEST = cli,ml,zfp,pcodec,msgpack,sync,images,snappy,hdf5,netcdf,tiff,lmdb,redis,mongodb,fsspec,http,s3,gcs,azure
LOWEST := $(LOWEST),dask,xarray,zarr,jax,training,pillow,ome
test-lowest: .venv-lowest/ready
	PYTHONDONTWRITEBYTECODE= .venv-lowest/bin/python -m pytest -q -m 'not long' -W 'ignore:numpy.ndarray size changed' \
	    tests/codecs tests/dtypes tests/hierarchy tests/api tests/contracts/test_codec.py tests/convert tests/storage \
	    tests/interop --deselect tests/hierarchy/test_keywords.py::test_a_type_checker_knows_the_keywords \
	    --ignore tests/dtypes/test_fill.py

# The driver is made of software (tests/gpu/driver); OF_DRIVER=tests/gpu/driver runs a part.
CUDA ?= 13
ON_DRIVER = .venv-gpu-driver$(CUDA:13=)
test-gpu-driver: .venv/ready $(ON_DRIVER)/ready
	PYTHONPATH='$(CURDIR)' PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 HYPOTHESIS_PROFILE=few \
	    $(ON_DRIVER)/bin/python -m pytest -q -p tests.gpu.driver.plugin -p xdist --numprocesses=auto --dist=loadfile \
	    --no-loadscope-reorder --durations=10 $(OF_DRIVER)

OF_DRIVER = tests/gpu/driver tests/gpu/hardware tests/gpu/device/test_calls.py

# SUITES="zarr2" runs one of them; "--quick plugin", the files of zarr-python's suite that read and write most chunks.
test-zarr: .venv/ready .venv-zarr/ready
	PYTHONPATH='$(CURDIR)' PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 .venv-zarr/bin/python -m pytest -q -p no:cacheprovider \
	    tests/test_documentation.py -k under_zarr_python
	PYTHONPATH='$(CURDIR)' PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 .venv-zarr/bin/python -m pytest -q -p no:cacheprovider \
	    tests/virtual/test_icechunk.py tests/virtual/test_references.py tests/compat
	.venv-zarr/bin/python tools/peer_suites.py $(SUITES)

SUITES ?= plugin dask xarray engine zarr2 zarr3

coverage: .venv/ready
	$(PYTEST) --cov=gzarr --cov-branch --cov-report=term:skip-covered

lint: .venv/ready
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

docs: .venv-docs/ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build

# Uses the Python and the packages that are installed, as a machine with a GPU may reach no package index. The tests of
# hardware are one folder, so that nothing else needs to be importable. All parts run, whatever fails. PATIENCE is a
# digit before each limit.
gpu-check:
	@status=0; \
	timeout $(PATIENCE)40 $(PYTHON) -m gzarr gpu --warm || echo "the page of gzarr gpu is missing: see above"; \
	timeout $(PATIENCE)75 $(PYTHON) -m benchmarks.gpu.questions --deciding --out $(RESULTS)/questions-gpu.json \
	    --budget-s $(PATIENCE)65 || status=$$?; \
	timeout -s INT $(PATIENCE)130 $(PYTHON) -m pytest -m gpu --maxfail=40 --tb=short tests/gpu/hardware || status=$$?; \
	timeout $(PATIENCE)95 $(PYTHON) -m benchmarks.gpu.questions --others --out $(RESULTS)/questions-gpu.json \
	    --budget-s $(PATIENCE)80 || status=$$?; \
	timeout $(PATIENCE)170 $(PYTHON) -m benchmarks.gpu --device cuda --out $(RESULTS) --budget-s $(PATIENCE)150 || status=$$?; \
	$(PYTHON) -m benchmarks.gpu.table --results $(RESULTS) --page $(PAGE) || status=$$?; \
	exit $$status

RESULTS ?= benchmarks/results
PAGE ?= docs/gpu-speed.md

# The same on the driver made of software, with small sizes and fifteen minutes more for each part. Its figures mean
# nothing, and stay in a folder of their own.
gpu-check-on-driver: .venv/ready $(ON_DRIVER)/ready
	rm -rf build/gpu-check && mkdir -p build/gpu-check && cp docs/gpu-speed.md build/gpu-check
	PYTHONPATH='$(CURDIR)' PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 HYPOTHESIS_PROFILE=few \
	    PYTEST_ADDOPTS='-p tests.gpu.driver.plugin' $(MAKE) gpu-check PYTHON='$(ON_DRIVER)/bin/python -m tests.gpu.driver' \
	    RESULTS=build/gpu-check PAGE=build/gpu-check/gpu-speed.md PATIENCE=9

# Rebuilt when the dependencies or the C sources change. The package is installed in place, so that other edits need no
# new installation. Tests keep bytecode elsewhere, of the quarter of the modules that they import.
COMPILED = setup.py $(wildcard gzarr/cpu/loop/* gzarr/gpu/native/*)
.venv/ready: EXTRA = test
.venv/ready: HOW = --no-compile
.venv-demo/ready: EXTRA = pillow
.venv-docs/ready: EXTRA = docs
.venv-torch/ready: EXTRA = test-torch
.venv-torch/ready: MORE = tools/install_torch.py $(TORCH)
.venv/ready .venv-demo/ready .venv-docs/ready .venv-torch/ready: pyproject.toml $(COMPILED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "gzarr needs Python 3.11 or newer, and $(PYTHON) is not; try: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(HOW) --editable '.[$(EXTRA)]'
	$(if $(MORE),$(@D)/bin/python $(MORE))
	touch $@

.venv-lowest/ready: pyproject.toml $(COMPILED)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --resolution lowest-direct --editable '.[$(LOWEST)]' \
	    'distributed>=2025.9'
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python pytest hypothesis pytest-cov
	touch $@

# The peers need two environments, as zarr 2 and zarr 3 exclude each other. BENCH="--only 'one row'" passes options on.
bench: .venv-bench-v3/ready .venv-bench-v2/ready
	@.venv-bench-v3/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
	echo "zarr 3.2 and newer need Python 3.12: an older zarr is measured; try: make clean; make PYTHON=python3.12 bench" >&2
	.venv-bench-v3/bin/python -m benchmarks.cpu --python v2=.venv-bench-v2/bin/python $(WRITTEN) $(BENCH)
	$(if $(findstring --table,$(BENCH)),.venv-bench-v3/bin/python -m benchmarks.cpu.in_place --table docs/benchmarks.md)

# Files are written to memory if the system has a folder for that, as a disk would be timed instead.
WRITTEN ?= $(patsubst %,--written %,$(wildcard /dev/shm))
BENCH ?= --out benchmarks/results/cpu.json --table docs/benchmarks.md

# insitubatch and annbatch need Python 3.12. BENCH_LOADER="--only Cx --rounds 7" passes options on.
bench-loader: .venv-bench-loader/ready
	.venv-bench-loader/bin/python -m benchmarks.loader $(BENCH_LOADER)
	.venv-bench-loader/bin/python -m benchmarks.loader.ranks
	.venv-bench-loader/bin/python -m benchmarks.loader.more

PYTHON_LOADER ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python) python3.12)
BENCH_LOADER ?= --remote --out benchmarks/results/loader.json --table docs/benchmarks-loader.md

# topozarr needs Python 3.12. BENCH_IMAGES="--only C --rounds 5" passes options on.
bench-images: .venv-bench-images/ready
	.venv-bench-images/bin/python -m benchmarks.images $(WRITTEN) $(BENCH_IMAGES)

BENCH_IMAGES ?= --out benchmarks/results/images.json --table docs/benchmarks-images.md

# The peers run in the environment of `make bench`. TORTURE="--only shards --minutes 2" passes options on.
torture: .venv/ready .venv-bench-v3/ready
	.venv/bin/python -m benchmarks.torture $(patsubst %,--python %=.venv-bench-v3/bin/python,zarr tensorstore) $(TORTURE)

TORTURE ?= --minutes 60 --writer gzarr,zarr,tensorstore --json benchmarks/results/torture.json --table docs/reliability.md

.venv-bench-v3/ready: pyproject.toml $(COMPILED) benchmarks/requirements-v3.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-v3.txt --editable .
	touch $@

.venv-bench-loader/ready: pyproject.toml $(COMPILED) benchmarks/requirements-loader.txt tools/install_torch.py
	@$(PYTHON_LOADER) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
	{ echo "the peers need Python 3.12; try: make PYTHON_LOADER=python3.12 bench-loader" >&2; exit 1; }
	$(PYTHON_LOADER) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-loader.txt --editable .
	$(@D)/bin/python tools/install_torch.py
	touch $@

.venv-bench-images/ready: pyproject.toml $(COMPILED) benchmarks/requirements-images.txt
	@$(PYTHON_LOADER) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
	{ echo "topozarr needs Python 3.12; try: make PYTHON_LOADER=python3.12 bench-images" >&2; exit 1; }
	$(PYTHON_LOADER) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-images.txt --editable .
	touch $@

# zarr-python 3.2 and newer need Python 3.12. gzarr is not installed in it but on its path, with what .venv/ready made.
.venv-zarr/ready: tests/support/suites/requirements.txt
	@$(PYTHON_LOADER) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
	{ echo "zarr-python needs Python 3.12; try: make PYTHON_LOADER=python3.12 test-zarr" >&2; exit 1; }
	$(PYTHON_LOADER) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	$(@D)/bin/python tools/peer_suites.py --fetch
	touch $@

# Python 3.12, as numpy's newest needs it. KvikIO's Python part would bring CUDA's libraries.
.venv-gpu-driver/ready: WHEELS = 13
.venv-gpu-driver12/ready: WHEELS = 12
.venv-gpu-driver/ready .venv-gpu-driver12/ready: $(wildcard tests/gpu/driver/requirements*.txt)
	$(PYTHON_LOADER) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	    -r tests/gpu/driver/requirements-cuda$(WHEELS).txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps 'kvikio-cu$(WHEELS)==26.10.*'
	touch $@

.venv-bench-v2/ready: benchmarks/requirements-v2.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements-v2.txt
	touch $@

clean:
	rm -rf .venv .venv-demo .venv-docs .venv-torch .venv-lowest .venv-zarr .venv-gpu-driver .venv-gpu-driver12 .venv-bench-v2 .venv-bench-v3 .venv-bench-loader .venv-bench-images .bench-cache demo-out site build dist .coverage .hypothesis .pytest_cache .mypy_cache .ruff_cache
	rm -rf gzarr.egg-info gzarr/cpu/_loop.*so gzarr/gpu/_host_kernels*.so tests/support/node/node_modules
	find gzarr tests -name __pycache__ -type d -prune -exec rm -rf {} +
