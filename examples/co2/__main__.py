"""``python examples/co2``: the example's command line."""

import os

# The matrices are small: a second thread gains nothing, and on a busy machine the two wait for each other fifty
# times as long as the work takes. Read when NumPy and PyTorch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import run

if __name__ == "__main__":
    raise SystemExit(run.main())
