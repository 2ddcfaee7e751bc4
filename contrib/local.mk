# Files for those who run machines, installed beside the library: pkg-config, module files, examples for
# Slurm. contrib/README.md explains each.
fr_contrib_edit = $(SED) -e 's|[@]VERSION@|$(PACKAGE_VERSION)|g' -e 's|[@]PREFIX@|$(prefix)|g' \
    -e 's|[@]EXEC_PREFIX@|$(exec_prefix)|g' -e 's|[@]BINDIR@|$(bindir)|g' \
    -e 's|[@]LIBDIR@|$(libdir)|g' -e 's|[@]LIBEXECDIR@|$(libexecdir)|g' -e 's|[@]MANDIR@|$(mandir)|g' \
    -e 's|[@]PKGDATADIR@|$(pkgdatadir)|g'

pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = contrib/pkgconfig/fabrail.pc
contrib/pkgconfig/fabrail.pc: contrib/pkgconfig/fabrail.pc.in Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(fr_contrib_edit) $(srcdir)/$@.in >$@.tmp && mv -f $@.tmp $@

# A folder for each system of modules, to be put into MODULEPATH; the files are named for the version.
fr_lmod_files = contrib/modulefiles/fabrail.lua contrib/modulefiles/fabrail-preload.lua
fr_tcl_files = contrib/modulefiles/fabrail.tcl contrib/modulefiles/fabrail-preload.tcl
$(fr_lmod_files) $(fr_tcl_files): contrib/modulefiles/%: contrib/modulefiles/%.in Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(fr_contrib_edit) $(srcdir)/$@.in >$@.tmp && mv -f $@.tmp $@
fr_all_local += $(fr_lmod_files) $(fr_tcl_files)
fr_modules = $(DESTDIR)$(pkgdatadir)/modulefiles
install-data-local: $(fr_lmod_files) $(fr_tcl_files)
	for module in fabrail fabrail-preload; do \
	    $(MKDIR_P) "$(fr_modules)/lmod/$$module" "$(fr_modules)/tcl/$$module" && \
	    $(INSTALL_DATA) contrib/modulefiles/$$module.lua \
	        "$(fr_modules)/lmod/$$module/$(PACKAGE_VERSION).lua" && \
	    $(INSTALL_DATA) contrib/modulefiles/$$module.tcl \
	        "$(fr_modules)/tcl/$$module/$(PACKAGE_VERSION)" || exit 1; \
	done

slurmdir = $(pkgdatadir)/slurm
nodist_slurm_SCRIPTS = contrib/slurm/job.sh contrib/slurm/task-prolog.sh
$(nodist_slurm_SCRIPTS): contrib/slurm/%: contrib/slurm/%.in Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(fr_contrib_edit) $(srcdir)/$@.in >$@.tmp && chmod +x $@.tmp && \
	    mv -f $@.tmp $@
EXTRA_DIST += contrib/rpm/build contrib/rpm/fabrail.spec contrib/conda/meta.yaml contrib/conda/build.sh \
    contrib/easybuild/fabrail-0.1.0-GCCcore-13.2.0.eb contrib/container/Dockerfile contrib/container/Dockerfile.dockerignore \
    contrib/container/fabrail.def contrib/wheel/build contrib/wheel/pyproject.toml contrib/wheel/setup.py \
    contrib/wheel/fabrail/__init__.py contrib/wheel/fabrail/__main__.py
# The plugin. Slurm's own functions are there when it is loaded.
if HAVE_SPANK
pkglib_LTLIBRARIES = contrib/slurm/spank_fabrail.la
contrib_slurm_spank_fabrail_la_SOURCES = contrib/slurm/spank_fabrail.c
contrib_slurm_spank_fabrail_la_CPPFLAGS = -DFR_LIBRARY='"$(libdir)/libfabrail.so"'
contrib_slurm_spank_fabrail_la_CFLAGS = $(WARN_CFLAGS)
contrib_slurm_spank_fabrail_la_LDFLAGS = -module -avoid-version -shared
endif
EXTRA_DIST += contrib/slurm/spank_fabrail.c contrib/README.md contrib/deb contrib/pkgconfig/fabrail.pc.in \
    $(nodist_slurm_SCRIPTS:%=%.in) $(fr_lmod_files:%=%.in) $(fr_tcl_files:%=%.in) contrib/spack/repo.yaml \
    contrib/spack/packages/fabrail/package.py debian/changelog debian/control debian/copyright \
    debian/fabrail.install debian/fabrail-programs-mpich.install debian/fabrail-programs-openmpi.install \
    debian/not-installed debian/rules debian/source/format
CLEANFILES += $(nodist_slurm_SCRIPTS) contrib/pkgconfig/fabrail.pc $(fr_lmod_files) $(fr_tcl_files)
