librooms_la_SOURCES += src/policy/collective.c src/policy/collective.h src/policy/policy.c \
	src/policy/policy.h src/policy/scheme.c src/policy/scheme.h src/policy/tuning.c \
	src/policy/tuning.h
