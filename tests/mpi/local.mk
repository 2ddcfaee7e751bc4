# The runner that starts included programs under each MPI found.
EXTRA_DIST += tests/mpi/run-program
EXTRA_DIST += tests/mpi/leaks.supp tests/mpi/races.supp tests/mpi/valgrind.supp
