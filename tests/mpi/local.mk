# The runner that starts included programs under each MPI found.
EXTRA_DIST += tests/mpi/run-program
