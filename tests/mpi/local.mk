# The included programs under each MPI that configure found, and the runner that starts them.
fr_mpi_tests = tests/mpi/programs-openmpi.test tests/mpi/programs-mpich.test \
    tests/mpi/programs-openmpi5.test tests/mpi/programs-mpich5.test tests/mpi/programs-mpiabi.test
EXTRA_DIST += $(fr_mpi_tests) tests/mpi/programs tests/mpi/run-program \
    tests/mpi/leaks.supp tests/mpi/races.supp tests/mpi/valgrind.supp
if !CROSS_COMPILING
TESTS += $(fr_mpi_tests)
endif
