libmodules_la_SOURCES += src/policy/access_way.c include/fabrail/policy/access_way.h src/policy/coll_plan.c include/fabrail/policy/coll_plan.h src/policy/policy.c \
	include/fabrail/policy.h src/policy/scheme.c include/fabrail/policy/scheme.h include/fabrail/policy/schemes.def src/policy/tuning.c \
	include/fabrail/policy/tuning.h
