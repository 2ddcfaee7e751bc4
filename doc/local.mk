# The manual page: fabrail.7.in with the table of settings put in. A cross build cannot run the
# program that writes the table and goes without the page.
EXTRA_DIST += doc/fabrail.7.in doc/check-names.sh doc/check-settings.sh
CLEANFILES += doc/fabrail.7 doc/settings.roff

if !CROSS_COMPILING
noinst_PROGRAMS += doc/settings
man7_MANS += doc/fabrail.7

doc/settings.roff: doc/settings$(EXEEXT)
	$(AM_V_GEN)doc/settings$(EXEEXT) >$@.tmp && mv -f $@.tmp $@

doc/fabrail.7: doc/fabrail.7.in doc/settings.roff
	$(AM_V_GEN)$(SED) -e '/^@SETTINGS@$$/r doc/settings.roff' -e '/^@SETTINGS@$$/d' \
	    -e 's/[@]VERSION@/$(PACKAGE_VERSION)/' $(srcdir)/doc/fabrail.7.in >$@.tmp && mv -f $@.tmp $@

TESTS += doc/check-settings.sh
endif
TESTS += doc/check-names.sh

# As they lie here, so that their links hold.
nobase_dist_doc_DATA = README.md NEWS COPYING contrib/README.md doc/design.md doc/run.md \
    doc/settings.md doc/understand.md contrib/container/README.md \
    doc/performance.md doc/report.schema.json doc/security.md \
    doc/troubleshooting.md $(fr_benchmarks) $(fr_figures)

# Records of measurements, by day.
fr_benchmarks = doc/benchmarks/2026-11-21.md doc/benchmarks/2026-11-22.md \
    doc/benchmarks/2026-11-23.md doc/benchmarks/2026-11-24.md \
    doc/benchmarks/2026-11-25.md doc/benchmarks/2026-11-26.md \
    doc/benchmarks/2026-11-27.md

# Measurements of fabrail bench, as JSON, and the plots that it makes of them.
fr_figures = doc/figures/allreduce-2.json doc/figures/allreduce-4.json doc/figures/exchange.json \
    doc/figures/message.json doc/figures/bandwidth-of-messages-in-flight-2-ranks-open-mpi-4.1.6.svg \
    doc/figures/mpi-allreduce-2-ranks-open-mpi-4.1.6.svg \
    doc/figures/mpi-allreduce-4-ranks-open-mpi-4.1.6.svg \
    doc/figures/mpi-alltoall-4-ranks-open-mpi-4.1.6.svg \
    doc/figures/one-way-time-of-a-message-2-ranks-open-mpi-4.1.6.svg doc/figures/report.png

# That of the command, with the part on its subcommands put in by the command itself.
EXTRA_DIST += doc/fabrail.1.in
CLEANFILES += doc/fabrail.1 doc/commands.roff
if !CROSS_COMPILING
man1_MANS += doc/fabrail.1
doc/commands.roff: tools/fabrail$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) doc && tools/fabrail$(EXEEXT) --manual >$@.tmp && mv -f $@.tmp $@

doc/fabrail.1: doc/fabrail.1.in doc/commands.roff Makefile
	$(AM_V_GEN)$(SED) -e '/^@COMMANDS@$$/r doc/commands.roff' -e '/^@COMMANDS@$$/d' \
	    -e 's/[@]VERSION@/$(PACKAGE_VERSION)/' -e 's|[@]SYSCONFDIR@|$(sysconfdir)|' \
	    -e 's|[@]LIBEXECDIR@|$(libexecdir)|' $(srcdir)/doc/fabrail.1.in >$@.tmp && mv -f $@.tmp $@
endif
