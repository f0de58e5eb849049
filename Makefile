# Thin: each target calls a script that can be called by hand.
.PHONY: demo test random-tests bench claims phones front front-lab fairness-lab never-worse kernels congestion-control measure-evidence measure-peers modem-evidence fuzz-long corpus-kills link-findings link-fits what-if what-if-runs docs install clean

# The main job on the bundled captures, on a machine with python3, cargo and gcc.
demo: install
	.venv/bin/unbloat demo --report unbloat-report.html

# Sets up what the tests need and runs every check.
test:
	./setup --tests
	./check

# Property tests with new cases, ten rounds; ./check draws the same cases every time. Prints the seed of what fails.
random-tests:
	./setup --tests
	.venv/bin/python tests/random_tests.py

bench: install
	.venv/bin/python bench/run.py
	.venv/bin/python bench/sim/run.py
	.venv/bin/python bench/corpus/run.py
	.venv/bin/python bench/what_if/run.py

# Synthetic phones beside the traffic of 15 students, a quarter of an hour on two processors. Resumes.
phones:
	./setup --tests
	.venv/bin/unbloat reproduce phones --store docs/generated/phones.jsonl --page docs/generated/phones.md

# Every cure on every link of the tuning half, ten minutes, and how several flows share. Resumes. HALF=both: all links.
HALF ?= tuning
UNBLOAT_SHARED ?= ../shared
front:
	./setup --tests
	.venv/bin/unbloat reproduce fairness --store docs/generated/fairness.jsonl --page docs/generated/fairness.md
	.venv/bin/unbloat reproduce front --half $(HALF) --traces $(UNBLOAT_SHARED)/traces \
		--store docs/generated/front.jsonl --page docs/generated/front.md

# Every claim with all its seeds, ten minutes. Resumes; a claim whose first seed gives what is stored is not run again.
claims:
	./setup --tests
	.venv/bin/unbloat reproduce --traces $(UNBLOAT_SHARED)/traces --store docs/generated/claims.jsonl --markdown docs/generated

# Six links of the front on the kernel's own TCP with unbloat-agent, twenty minutes, as root. Resumes. REPEAT=3: three runs each.
REPEAT ?= 1
front-lab:
	./setup --tests
	-modprobe tcp_bbr
	.venv/bin/unbloat reproduce front --lab --repeat $(REPEAT) --traces $(UNBLOAT_SHARED)/traces \
		--store docs/generated/front.jsonl --page docs/generated/front.md

# Latecomers, and both ways at once, on the kernel's own TCP with unbloat-agent, twenty-five minutes, as root. Resumes.
fairness-lab:
	./setup --tests
	.venv/bin/unbloat reproduce fairness --lab --repeat $(REPEAT) \
		--store docs/generated/fairness.jsonl --page docs/generated/fairness.md

# What the agent costs on paths where it does not help: eighteen paths in guests under QEMU, an hour. Resumes.
never-worse:
	./setup --tests
	.venv/bin/python bench/agent/never_worse.py

# The agent on the kernels of Debian's archive, in guests under QEMU: five kernels, one of them five times. Resumes.
kernels:
	./setup --tests
	.venv/bin/python tests/kernels/run.py

# Every congestion control of Linux, recognised in captures of guests under QEMU: 272 uploads, two hours. Resumes.
congestion-control:
	./setup --tests
	.venv/bin/python tests/kernels/congestion.py

# Accuracy of `unbloat measure` on nine paths beside the emulator's log, as root: RUNS of each, half an hour for five. Resumes.
RUNS ?= 5
measure-evidence:
	./setup --tests
	PYTHONPATH=tests:tests/measure .venv/bin/python tests/measure/evidence.py --runs $(RUNS) \
		--store docs/generated/measure.jsonl --page docs/generated/measure.md

# The gate behind `unbloat-modem serve`, beside the gate behind the emulator's own reports, as root: twenty minutes.
modem-evidence:
	./setup --tests
	UNBLOAT_MODEM_SPANS=all .venv/bin/python -m pytest -rP tests/agent/test_modem_port.py

# Every fuzz target in turn, the one that has run for the shortest time first, until 10^9 executions are stored. Resumes run by run.
FUZZ ?=
fuzz-long:
	python3 fuzz/long.py $(FUZZ)

# What two findings say about links that are known, two minutes. TRACES is a folder with mahimahi/, norway3g/ and irish5g/. Resumes.
link-findings:
	./setup --tests
	.venv/bin/python bench/what_if/findings.py --traces $(TRACES)

# How well `unbloat fit` knows links that are known, two minutes. TRACES as above. Resumes.
link-fits:
	./setup --tests
	.venv/bin/python bench/what_if/fits.py --traces $(TRACES)

# How well `unbloat what-if` predicts cures on links that are known, seven minutes. TRACES as above. Resumes.
what-if:
	./setup --tests
	.venv/bin/python bench/what_if/predictions.py --traces $(TRACES)

# The same on the kernel's own TCP, as root: RUNS of 26 links under eight cures, two hours each, and two minutes of predictions. Resumes.
what-if-runs: RUNS = 1
what-if-runs:
	./setup --tests
	.venv/bin/python bench/what_if/kernel_page.py --traces $(TRACES) --runs $(RUNS)

# A worker, a run, a worker of Dask and an object store, killed with -9 at 20 random moments each: the final tables are the same bytes.
corpus-kills:
	./setup --tests
	UNBLOAT_KILLS=20 .venv/bin/python -m pytest -q tests/corpus -k "killed"

# `unbloat measure` beside flent, crusader, iperf2 and goresponsiveness where they are installed, as root: half an hour. Resumes.
measure-peers:
	./setup --tests
	PYTHONPATH=tests:tests/measure .venv/bin/python bench/measure/peers.py \
		--store docs/generated/measure-peers.jsonl --page docs/generated/measure-peers.md

# The documentation as a site in site/; a broken link fails. Its search needs a server: .venv/bin/mkdocs serve
docs:
	./setup --docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict

install:
	./setup

clean:
	rm -rf .venv build target node_modules site python/unbloat.egg-info unbloat-report.html
