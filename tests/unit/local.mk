# Unit tests: one block a test. Those that include driver.h run on the simulated driver.
unit_driver_headers = tests/unit/check.h tests/unit/driver.h

check_PROGRAMS += tests/unit/core_settings
tests_unit_core_settings_SOURCES = tests/unit/core_settings.c tests/unit/check.h
tests_unit_core_settings_LDADD = librooms.la

check_PROGRAMS += tests/unit/core_log
tests_unit_core_log_SOURCES = tests/unit/core_log.c tests/unit/check.h
tests_unit_core_log_LDADD = librooms.la

check_PROGRAMS += tests/unit/core_hash
tests_unit_core_hash_SOURCES = tests/unit/core_hash.c tests/unit/check.h
tests_unit_core_hash_LDADD = librooms.la

check_PROGRAMS += tests/unit/core_wait
tests_unit_core_wait_SOURCES = tests/unit/core_wait.c tests/unit/check.h
tests_unit_core_wait_LDADD = librooms.la

check_PROGRAMS += tests/unit/real_caller
tests_unit_real_caller_SOURCES = tests/unit/real_caller.c tests/unit/check.h
tests_unit_real_caller_LDADD = librooms.la

check_PROGRAMS += tests/unit/real_rows
tests_unit_real_rows_SOURCES = tests/unit/real_rows.c tests/unit/check.h
tests_unit_real_rows_LDADD = librooms.la

check_PROGRAMS += tests/unit/policy_choose
tests_unit_policy_choose_SOURCES = tests/unit/policy_choose.c tests/unit/check.h
tests_unit_policy_choose_LDADD = librooms.la

check_PROGRAMS += tests/unit/policy_collective
tests_unit_policy_collective_SOURCES = tests/unit/policy_collective.c tests/unit/check.h
tests_unit_policy_collective_LDADD = librooms.la

check_PROGRAMS += tests/unit/policy_tuning
tests_unit_policy_tuning_SOURCES = tests/unit/policy_tuning.c tests/unit/check.h
tests_unit_policy_tuning_LDADD = librooms.la

check_PROGRAMS += tests/unit/policy_scheme
tests_unit_policy_scheme_SOURCES = tests/unit/policy_scheme.c tests/unit/check.h
tests_unit_policy_scheme_LDADD = librooms.la

check_PROGRAMS += tests/unit/memory_tuned
tests_unit_memory_tuned_SOURCES = tests/unit/memory_tuned.c $(unit_driver_headers)
tests_unit_memory_tuned_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_query
tests_unit_device_query_SOURCES = tests/unit/device_query.c $(unit_driver_headers)
tests_unit_device_query_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_row
tests_unit_device_row_SOURCES = tests/unit/device_row.c $(unit_driver_headers)
tests_unit_device_row_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_copy
tests_unit_device_copy_SOURCES = tests/unit/device_copy.c $(unit_driver_headers)
tests_unit_device_copy_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_clique
tests_unit_device_clique_SOURCES = tests/unit/device_clique.c $(unit_driver_headers)
tests_unit_device_clique_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_context
tests_unit_device_context_SOURCES = tests/unit/device_context.c $(unit_driver_headers)
tests_unit_device_context_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_mover
tests_unit_device_mover_SOURCES = tests/unit/device_mover.c $(unit_driver_headers)
tests_unit_device_mover_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_memory
tests_unit_device_memory_SOURCES = tests/unit/device_memory.c $(unit_driver_headers)
tests_unit_device_memory_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_classify
tests_unit_device_classify_SOURCES = tests/unit/device_classify.c $(unit_driver_headers)
tests_unit_device_classify_LDADD = librooms.la

check_PROGRAMS += tests/unit/path_view
tests_unit_path_view_SOURCES = tests/unit/path_view.c $(unit_driver_headers)
tests_unit_path_view_LDADD = librooms.la

unit_workspace_sources = $(unit_driver_headers) tests/unit/inside/workspace_usage.c \
    tests/unit/inside/workspace_usage.h

check_PROGRAMS += tests/unit/workspace_leases
tests_unit_workspace_leases_SOURCES = tests/unit/workspace_leases.c $(unit_workspace_sources)
tests_unit_workspace_leases_LDADD = librooms.la

check_PROGRAMS += tests/unit/workspace_soak
tests_unit_workspace_soak_SOURCES = tests/unit/workspace_soak.c $(unit_workspace_sources)
tests_unit_workspace_soak_LDADD = librooms.la

check_PROGRAMS += tests/unit/workspace_pool
tests_unit_workspace_pool_SOURCES = tests/unit/workspace_pool.c tests/unit/check.h
tests_unit_workspace_pool_LDADD = librooms.la

check_PROGRAMS += tests/unit/workspace_device
tests_unit_workspace_device_SOURCES = tests/unit/workspace_device.c $(unit_workspace_sources)
tests_unit_workspace_device_LDADD = librooms.la

check_PROGRAMS += tests/unit/workspace_device_soak
tests_unit_workspace_device_soak_SOURCES = tests/unit/workspace_device_soak.c $(unit_driver_headers)
tests_unit_workspace_device_soak_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_reduce
tests_unit_device_reduce_SOURCES = tests/unit/device_reduce.c $(unit_driver_headers)
tests_unit_device_reduce_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_pack
tests_unit_device_pack_SOURCES = tests/unit/device_pack.c $(unit_driver_headers)
tests_unit_device_pack_LDADD = librooms.la

check_PROGRAMS += tests/unit/device_push
tests_unit_device_push_SOURCES = tests/unit/device_push.c $(unit_driver_headers)
tests_unit_device_push_LDADD = librooms.la

# Tests of several processes, which start themselves.
unit_peer_sources = $(unit_driver_headers) tests/unit/memory_pair.h tests/unit/processes.h \
    tests/unit/inside/memory_usage.c tests/unit/inside/memory_usage.h

check_PROGRAMS += tests/unit/workspace_share
tests_unit_workspace_share_SOURCES = tests/unit/workspace_share.c $(unit_peer_sources)
tests_unit_workspace_share_LDADD = librooms.la

check_PROGRAMS += tests/unit/memory_share
tests_unit_memory_share_SOURCES = tests/unit/memory_share.c $(unit_peer_sources)
tests_unit_memory_share_LDADD = librooms.la

check_PROGRAMS += tests/unit/memory_cache
tests_unit_memory_cache_SOURCES = tests/unit/memory_cache.c $(unit_peer_sources)
tests_unit_memory_cache_LDADD = librooms.la

check_PROGRAMS += tests/unit/memory_importers
tests_unit_memory_importers_SOURCES = tests/unit/memory_importers.c tests/unit/control_job.h \
    $(unit_peer_sources)
tests_unit_memory_importers_LDADD = librooms.la

check_PROGRAMS += tests/unit/memory_channel
tests_unit_memory_channel_SOURCES = tests/unit/memory_channel.c tests/unit/check.h \
    tests/unit/processes.h
tests_unit_memory_channel_LDADD = librooms.la

check_PROGRAMS += tests/unit/memory_failures
tests_unit_memory_failures_SOURCES = tests/unit/memory_failures.c $(unit_peer_sources)
tests_unit_memory_failures_LDADD = librooms.la

check_PROGRAMS += tests/unit/coll_segment
tests_unit_coll_segment_SOURCES = tests/unit/coll_segment.c tests/unit/check.h \
    tests/unit/processes.h
tests_unit_coll_segment_LDADD = librooms.la

check_PROGRAMS += tests/unit/coll_number
tests_unit_coll_number_SOURCES = tests/unit/coll_number.c tests/unit/check.h
tests_unit_coll_number_LDADD = librooms.la

check_PROGRAMS += tests/unit/coll_scale
tests_unit_coll_scale_SOURCES = tests/unit/coll_scale.c tests/unit/check.h
tests_unit_coll_scale_LDADD = librooms.la

check_PROGRAMS += tests/unit/coll_agree
tests_unit_coll_agree_SOURCES = tests/unit/coll_agree.c tests/unit/check.h
tests_unit_coll_agree_LDADD = librooms.la
tests_unit_coll_agree_LDFLAGS = -Wl,--wrap=fr_memory_forget_buffer

check_PROGRAMS += tests/unit/world_hydra
tests_unit_world_hydra_SOURCES = tests/unit/world_hydra.c tests/unit/check.h
tests_unit_world_hydra_LDADD = librooms.la

check_PROGRAMS += tests/unit/world_tally
tests_unit_world_tally_SOURCES = tests/unit/world_tally.c tests/unit/check.h
tests_unit_world_tally_LDADD = librooms.la

check_PROGRAMS += tests/unit/world_scale
tests_unit_world_scale_SOURCES = tests/unit/world_scale.c tests/unit/check.h
tests_unit_world_scale_LDADD = librooms.la

check_PROGRAMS += tests/unit/coll_slab
tests_unit_coll_slab_SOURCES = tests/unit/coll_slab.c $(unit_peer_sources)
tests_unit_coll_slab_LDADD = librooms.la

check_PROGRAMS += tests/unit/coll_task
tests_unit_coll_task_SOURCES = tests/unit/coll_task.c $(unit_peer_sources)
tests_unit_coll_task_LDADD = librooms.la
tests_unit_coll_task_LDFLAGS = -Wl,--wrap=fr_coll_meet_tell,--wrap=fr_coll_meet_was_told

check_PROGRAMS += tests/unit/control_secret
tests_unit_control_secret_SOURCES = tests/unit/control_secret.c tests/unit/check.h
tests_unit_control_secret_LDADD = librooms.la

check_PROGRAMS += tests/unit/control_host
tests_unit_control_host_SOURCES = tests/unit/control_host.c tests/unit/check.h \
    tests/unit/control_job.h tests/unit/processes.h
tests_unit_control_host_LDADD = librooms.la

# With a world of their own, which stands in for the objects of room world in the library.
unit_rndv_headers = tests/unit/check.h tests/unit/control_job.h tests/unit/processes.h \
    tests/unit/rndv_host.h tests/unit/rndv_world.h

check_PROGRAMS += tests/unit/rndv_ledger
tests_unit_rndv_ledger_SOURCES = tests/unit/rndv_ledger.c $(unit_rndv_headers)
tests_unit_rndv_ledger_LDADD = librooms.la

check_PROGRAMS += tests/unit/rndv_threads
tests_unit_rndv_threads_SOURCES = tests/unit/rndv_threads.c $(unit_rndv_headers)
tests_unit_rndv_threads_LDADD = librooms.la

check_PROGRAMS += tests/unit/rndv_replica
tests_unit_rndv_replica_SOURCES = tests/unit/rndv_replica.c $(unit_rndv_headers)
tests_unit_rndv_replica_LDADD = librooms.la
tests_unit_rndv_replica_LDFLAGS = -Wl,--wrap=calloc

check_PROGRAMS += tests/unit/rndv_scheme
tests_unit_rndv_scheme_SOURCES = tests/unit/rndv_scheme.c $(unit_rndv_headers)
tests_unit_rndv_scheme_LDADD = librooms.la

check_PROGRAMS += tests/unit/rndv_stage
tests_unit_rndv_stage_SOURCES = tests/unit/rndv_stage.c $(unit_workspace_sources)
tests_unit_rndv_stage_LDADD = librooms.la

check_PROGRAMS += tests/unit/rndv_traffic
tests_unit_rndv_traffic_SOURCES = tests/unit/rndv_traffic.c $(unit_rndv_headers) \
    tests/unit/driver.h tests/unit/memory_pair.h tests/unit/inside/memory_usage.c \
    tests/unit/inside/memory_usage.h
tests_unit_rndv_traffic_LDADD = librooms.la

# With an MPI of its own, hence without the rooms.
check_PROGRAMS += tests/unit/request_posted
tests_unit_request_posted_SOURCES = tests/unit/request_posted.c tests/unit/check.h \
    src/request/posted.c src/request/posted_rts.c src/real/rows.c
tests_unit_request_posted_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/request_deliver
tests_unit_request_deliver_SOURCES = tests/unit/request_deliver.c tests/unit/check.h \
    src/request/deliver.c src/real/rows.c
tests_unit_request_deliver_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/request_defer
tests_unit_request_defer_SOURCES = tests/unit/request_defer.c tests/unit/check.h \
    src/request/defer.c src/core/wait.c src/real/rows.c
tests_unit_request_defer_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/request_complete
tests_unit_request_complete_SOURCES = tests/unit/request_complete.c tests/unit/check.h \
    src/request/complete.c src/request/outcome.c src/request/set.c src/real/rows.c
tests_unit_request_complete_CFLAGS = $(AM_CFLAGS)
tests_unit_request_complete_LDFLAGS = -Wl,--wrap=malloc

check_PROGRAMS += tests/unit/request_table
tests_unit_request_table_SOURCES = tests/unit/request_table.c tests/unit/check.h
tests_unit_request_table_LDADD = librooms.la
tests_unit_request_table_LDFLAGS = -Wl,--wrap=fr_rndv_incoming_any,--wrap=fr_rndv_incoming_read \
    -Wl,--wrap=fr_rndv_incoming_take,--wrap=fr_rndv_incoming_take_known \
    -Wl,--wrap=fr_real_call

check_PROGRAMS += tests/unit/request_pending
tests_unit_request_pending_SOURCES = tests/unit/request_pending.c tests/unit/check.h \
    src/request/pending.c src/mpi/sync.c src/real/rows.c
tests_unit_request_pending_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/mpi_probe
tests_unit_mpi_probe_SOURCES = tests/unit/mpi_probe.c tests/unit/check.h src/mpi/probe.c \
    src/real/rows.c
tests_unit_mpi_probe_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/mpi_quick
tests_unit_mpi_quick_SOURCES = tests/unit/mpi_quick.c tests/unit/check.h src/mpi/quick.c \
    src/real/rows.c
tests_unit_mpi_quick_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/report_counts
tests_unit_report_counts_SOURCES = tests/unit/report_counts.c tests/unit/check.h
tests_unit_report_counts_LDADD = librooms.la
