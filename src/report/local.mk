librooms_la_SOURCES += src/report/report.c src/report/report.h
