# The command that is installed, with its subcommands.
bin_PROGRAMS += tools/fabrail
tools_fabrail_SOURCES = tools/fabrail.c tools/command.c tools/command.h tools/manual.c tools/completion.c \
    tools/child.c tools/child.h tools/elf_file.c tools/elf_file.h tools/launch.c tools/launch.h tools/preload.c tools/preload.h \
    tools/compose.c tools/pairing.c tools/pairing.h tools/run.c tools/json_write.c tools/json_write.h tools/info.c tools/info.h \
    tools/bench.c tools/figures.c tools/figures.h tools/plot.c \
    tools/explain.c tools/explain.h tools/explain_policy.c tools/explain_type.c tools/explain_report.c \
    tools/info_check.c tools/info_gpu.c tools/info_mpi.c tools/info_paths.c tools/info_rails.c \
    tools/tune.c tools/tune.h tools/tune_file.c tools/tune_gpus.c tools/tune_measure.c tools/tune_pack.c tools/tune_pack.h tools/tune_plan.c tools/tune_plan.h \
    tools/tune_rails.c tools/tune_rig.c tools/tune_rig.h tools/tune_table.c
tools_fabrail_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CPPFLAGS) -I$(top_builddir)/tools \
    -DFR_LIBDIR='"$(libdir)"' -DFR_LIBEXECDIR='"$(libexecdir)"' \
    -DFR_LIBDIR_BESIDE='"$(fr_libdir_beside)"' -DFR_LIBEXECDIR_BESIDE='"$(fr_libexecdir_beside)"'
# The folders of libraries and programs, as seen from the one of commands, in one prefix.
fr_libdir_beside = $(patsubst $(exec_prefix)/%,../%,$(libdir))
fr_libexecdir_beside = $(patsubst $(exec_prefix)/%,../%,$(libexecdir))
tools_fabrail_LDADD = libmodules.la $(JSON_C_LIBS) -lm
# It has folders in it, which another run of configure may change.
tools/fabrail-launch.$(OBJEXT): Makefile

# fabrail report, its page's style and script as strings of C, and what reads JSON if there is json-c.
tools_fabrail_SOURCES += tools/report.c tools/report.h tools/report_advice.c tools/report_charts.c \
    tools/report_html.c tools/report_job.c tools/report_sites.c tools/report_matrix.c tools/report_page.c \
    tools/report_tables.c tools/report_verdict.c
nodist_tools_fabrail_SOURCES = tools/report_assets.h
EXTRA_DIST += tools/report.css tools/report.js
BUILT_SOURCES += tools/report_assets.h
CLEANFILES += tools/report_assets.h
if HAVE_JSON_C
tools_fabrail_SOURCES += tools/figures_read.c tools/report_file.c tools/report_file.h tools/report_read.c \
    tools/report_clocks.c tools/report_trace.c tools/report_trace.h
else
tools_fabrail_SOURCES += tools/report_none.c
endif
fr_as_string = $(SED) -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/'
tools/report_assets.h: tools/report.css tools/report.js Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && { \
	    echo 'static const char fr_report_css[] =' && $(fr_as_string) $(srcdir)/tools/report.css && \
	    echo '    ;' && echo 'static const char fr_report_js[] =' && \
	    $(fr_as_string) $(srcdir)/tools/report.js && echo '    ;'; } >$@.tmp && mv -f $@.tmp $@

# Removes what was installed by rules of this tree's own.
uninstall-hook:
	rm -rf '$(DESTDIR)$(pkglibexecdir)' '$(DESTDIR)$(pkgdatadir)/modulefiles'

# Completion for shells, which load it by the command's name.
if !CROSS_COMPILING
bashcompletiondir = $(datadir)/bash-completion/completions
nodist_bashcompletion_DATA = tools/completion/fabrail
zshcompletiondir = $(datadir)/zsh/site-functions
nodist_zshcompletion_DATA = tools/completion/_fabrail
fishcompletiondir = $(datadir)/fish/vendor_completions.d
nodist_fishcompletion_DATA = tools/completion/fabrail.fish
fr_completion = tools/completion/fabrail tools/completion/_fabrail tools/completion/fabrail.fish
CLEANFILES += $(fr_completion)
tools/completion/fabrail: fr_shell = bash
tools/completion/_fabrail: fr_shell = zsh
tools/completion/fabrail.fish: fr_shell = fish
$(fr_completion): tools/fabrail$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) $(@D) && tools/fabrail$(EXEEXT) --completion=$(fr_shell) >$@.tmp && mv -f $@.tmp $@
endif
