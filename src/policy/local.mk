librooms_la_SOURCES += src/policy/policy.c src/policy/policy.h src/policy/tuning.c src/policy/tuning.h
