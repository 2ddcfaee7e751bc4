# The command that is installed, with its subcommands; fabrail-tune is the older name of one.
bin_PROGRAMS += tools/fabrail
tools_fabrail_SOURCES = tools/command.c tools/command.h tools/fabrail.c tools/manual.c tools/tune.c \
    tools/tune.h tools/tune_file.c tools/tune_measure.c tools/tune_rig.c tools/tune_rig.h
tools_fabrail_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tools
tools_fabrail_LDADD = librooms.la

install-exec-hook:
	cd '$(DESTDIR)$(bindir)' && rm -f fabrail-tune && $(LN_S) fabrail fabrail-tune
uninstall-hook:
	rm -f '$(DESTDIR)$(bindir)/fabrail-tune'
