import os

# tinygrad keeps compiled kernels in an SQLite file, through a connection that serves one thread; the suite runs its
# scenarios in a thread of their own.
os.environ.setdefault("CACHELEVEL", "0")
