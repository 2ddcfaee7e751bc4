libmodules_la_SOURCES += \
	src/abi/call.c \
	src/abi/caller.c \
	include/fabrail/abi/classes.def \
	include/fabrail/abi/constants.def \
	include/fabrail/abi/functions.def include/fabrail/abi/function.def \
	src/abi/hook.c \
	src/abi/load.c \
	include/fabrail/abi/passes.def \
	src/abi/mpi5.def \
	src/abi/mpich.def \
	src/abi/openmpi.def \
	src/abi/personality.c \
	src/abi/personality.h \
	include/fabrail/abi.h \
	include/fabrail/abi/hook.h \
	include/fabrail/abi/rows.h \
	src/abi/rows.c \
	src/abi/shapes.def \
	src/abi/types.c \
	include/fabrail/abi/types.def

# The tables of the MPI families, each compared with every mpi.h that configure found.
fr_abi_table_of = src/abi/$(if $(filter openmpi%,$*),openmpi,$(if $(filter mpich%,$*),mpich,mpi5)).def
fr_abi_cppflags_openmpi = $(OPENMPI_CPPFLAGS)
fr_abi_cppflags_openmpi5 = $(OPENMPI5_CPPFLAGS)
fr_abi_cppflags_mpich = $(MPICH_CPPFLAGS)
fr_abi_cppflags_mpich5 = $(MPICH5_CPPFLAGS)
fr_abi_cppflags_mpiabi = $(MPIABI_CPPFLAGS)
fr_abi_checked = $(MPI_FLAVOURS:%=src/abi/checked-%)
CLEANFILES += $(fr_abi_checked)
EXTRA_DIST += contrib/mpi-table
if !CROSS_COMPILING
check_DATA += $(fr_abi_checked)
$(fr_abi_checked): src/abi/checked-%: contrib/mpi-table include/fabrail/abi/constants.def \
    include/fabrail/abi/types.def src/abi/openmpi.def src/abi/mpich.def src/abi/mpi5.def
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(srcdir)/contrib/mpi-table --check=$(srcdir)/$(fr_abi_table_of) \
	    $(CC) $(fr_abi_cppflags_$*) && touch $@
endif
