# Module report: counters, the report and the trace.
libmodules_la_SOURCES += src/report/clock.c src/report/finish.c src/report/json.c src/report/nvtx.c \
	src/report/out.c src/report/peers.c src/report/sites.c src/report/sites.h src/report/count.h src/report/report.c include/fabrail/report.h \
	src/report/report_int.h src/report/out.h src/report/summary.c src/report/trace.c \
	src/report/gather.c src/report/sums.c src/report/topics.c src/report/units.c \
	src/report/verdict.c src/report/verdict_text.c include/fabrail/report/units.h \
	include/fabrail/report/verdict.h
