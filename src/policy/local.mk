librooms_la_SOURCES += src/policy/policy.c src/policy/policy.h
