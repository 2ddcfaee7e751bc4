# Commands that are installed.
bin_PROGRAMS += tools/fabrail-tune
tools_fabrail_tune_SOURCES = tools/tune.c tools/tune.h tools/tune_file.c tools/tune_measure.c \
    tools/tune_rig.c tools/tune_rig.h
tools_fabrail_tune_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tools
tools_fabrail_tune_LDADD = librooms.la
