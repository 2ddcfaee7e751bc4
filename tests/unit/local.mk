# Unit tests: one block a test. Those that include driver.h run on the simulated driver.
unit_driver_headers = tests/unit/check.h tests/unit/driver.h

check_PROGRAMS += tests/unit/core_settings
tests_unit_core_settings_SOURCES = tests/unit/core_settings.c tests/unit/check.h
tests_unit_core_settings_LDADD = libmodules.la

check_PROGRAMS += tests/unit/core_log
tests_unit_core_log_SOURCES = tests/unit/core_log.c tests/unit/check.h
tests_unit_core_log_LDADD = libmodules.la

check_PROGRAMS += tests/unit/core_hash
tests_unit_core_hash_SOURCES = tests/unit/core_hash.c tests/unit/check.h
tests_unit_core_hash_LDADD = libmodules.la

check_PROGRAMS += tests/unit/core_wait
tests_unit_core_wait_SOURCES = tests/unit/core_wait.c tests/unit/check.h
tests_unit_core_wait_LDADD = libmodules.la

check_PROGRAMS += tests/unit/abi_caller
tests_unit_abi_caller_SOURCES = tests/unit/abi_caller.c tests/unit/check.h
tests_unit_abi_caller_LDADD = libmodules.la

check_PROGRAMS += tests/unit/abi_rows
tests_unit_abi_rows_SOURCES = tests/unit/abi_rows.c tests/unit/check.h
tests_unit_abi_rows_LDADD = libmodules.la

check_PROGRAMS += tests/unit/policy_choose
tests_unit_policy_choose_SOURCES = tests/unit/policy_choose.c tests/unit/check.h
tests_unit_policy_choose_LDADD = libmodules.la

check_PROGRAMS += tests/unit/policy_collective
tests_unit_policy_collective_SOURCES = tests/unit/policy_collective.c tests/unit/check.h
tests_unit_policy_collective_LDADD = libmodules.la

check_PROGRAMS += tests/unit/policy_tuning
tests_unit_policy_tuning_SOURCES = tests/unit/policy_tuning.c tests/unit/check.h
tests_unit_policy_tuning_LDADD = libmodules.la

check_PROGRAMS += tests/unit/policy_scheme
tests_unit_policy_scheme_SOURCES = tests/unit/policy_scheme.c tests/unit/check.h
tests_unit_policy_scheme_LDADD = libmodules.la

check_PROGRAMS += tests/unit/ipc_tuned
tests_unit_ipc_tuned_SOURCES = tests/unit/ipc_tuned.c $(unit_driver_headers)
tests_unit_ipc_tuned_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_query
tests_unit_device_query_SOURCES = tests/unit/device_query.c $(unit_driver_headers)
tests_unit_device_query_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_row
tests_unit_device_row_SOURCES = tests/unit/device_row.c $(unit_driver_headers)
tests_unit_device_row_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_copy
tests_unit_device_copy_SOURCES = tests/unit/device_copy.c $(unit_driver_headers)
tests_unit_device_copy_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_clique
tests_unit_device_clique_SOURCES = tests/unit/device_clique.c $(unit_driver_headers)
tests_unit_device_clique_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_context
tests_unit_device_context_SOURCES = tests/unit/device_context.c $(unit_driver_headers)
tests_unit_device_context_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_mover
tests_unit_device_mover_SOURCES = tests/unit/device_mover.c $(unit_driver_headers)
tests_unit_device_mover_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_memory
tests_unit_device_memory_SOURCES = tests/unit/device_memory.c $(unit_driver_headers)
tests_unit_device_memory_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_classify
tests_unit_device_classify_SOURCES = tests/unit/device_classify.c $(unit_driver_headers)
tests_unit_device_classify_LDADD = libmodules.la

check_PROGRAMS += tests/unit/staging_view
tests_unit_staging_view_SOURCES = tests/unit/staging_view.c $(unit_driver_headers)
tests_unit_staging_view_LDADD = libmodules.la

unit_workspace_sources = $(unit_driver_headers) tests/unit/inside/workspace_usage.c \
    tests/unit/inside/workspace_usage.h

check_PROGRAMS += tests/unit/staging_leases
tests_unit_staging_leases_SOURCES = tests/unit/staging_leases.c $(unit_workspace_sources)
tests_unit_staging_leases_LDADD = libmodules.la

check_PROGRAMS += tests/unit/staging_soak
tests_unit_staging_soak_SOURCES = tests/unit/staging_soak.c $(unit_workspace_sources)
tests_unit_staging_soak_LDADD = libmodules.la

check_PROGRAMS += tests/unit/staging_pool
tests_unit_staging_pool_SOURCES = tests/unit/staging_pool.c tests/unit/check.h
tests_unit_staging_pool_LDADD = libmodules.la

check_PROGRAMS += tests/unit/staging_device
tests_unit_staging_device_SOURCES = tests/unit/staging_device.c $(unit_workspace_sources)
tests_unit_staging_device_LDADD = libmodules.la

check_PROGRAMS += tests/unit/staging_tables
tests_unit_staging_tables_SOURCES = tests/unit/staging_tables.c $(unit_workspace_sources)
tests_unit_staging_tables_LDADD = libmodules.la

check_PROGRAMS += tests/unit/staging_device_soak
tests_unit_staging_device_soak_SOURCES = tests/unit/staging_device_soak.c $(unit_driver_headers)
tests_unit_staging_device_soak_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_reduce
tests_unit_device_reduce_SOURCES = tests/unit/device_reduce.c $(unit_driver_headers)
tests_unit_device_reduce_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_pack
tests_unit_device_pack_SOURCES = tests/unit/device_pack.c $(unit_driver_headers)
tests_unit_device_pack_LDADD = libmodules.la

check_PROGRAMS += tests/unit/device_push
tests_unit_device_push_SOURCES = tests/unit/device_push.c $(unit_driver_headers)
tests_unit_device_push_LDADD = libmodules.la

# Tests of several processes, which start themselves.
unit_peer_sources = $(unit_driver_headers) tests/unit/ipc_pair.h tests/unit/processes.h \
    tests/unit/inside/memory_usage.c tests/unit/inside/memory_usage.h

check_PROGRAMS += tests/unit/staging_share
tests_unit_staging_share_SOURCES = tests/unit/staging_share.c $(unit_peer_sources)
tests_unit_staging_share_LDADD = libmodules.la

check_PROGRAMS += tests/unit/ipc_share
tests_unit_ipc_share_SOURCES = tests/unit/ipc_share.c $(unit_peer_sources)
tests_unit_ipc_share_LDADD = libmodules.la

check_PROGRAMS += tests/unit/ipc_cache
tests_unit_ipc_cache_SOURCES = tests/unit/ipc_cache.c $(unit_peer_sources)
tests_unit_ipc_cache_LDADD = libmodules.la

check_PROGRAMS += tests/unit/ipc_importers
tests_unit_ipc_importers_SOURCES = tests/unit/ipc_importers.c tests/unit/job_job.h \
    $(unit_peer_sources)
tests_unit_ipc_importers_LDADD = libmodules.la

check_PROGRAMS += tests/unit/ipc_channel
tests_unit_ipc_channel_SOURCES = tests/unit/ipc_channel.c tests/unit/check.h \
    tests/unit/processes.h
tests_unit_ipc_channel_LDADD = libmodules.la

check_PROGRAMS += tests/unit/ipc_failures
tests_unit_ipc_failures_SOURCES = tests/unit/ipc_failures.c $(unit_peer_sources)
tests_unit_ipc_failures_LDADD = libmodules.la

check_PROGRAMS += tests/unit/coll_segment
tests_unit_coll_segment_SOURCES = tests/unit/coll_segment.c tests/unit/check.h \
    tests/unit/processes.h
tests_unit_coll_segment_LDADD = libmodules.la

check_PROGRAMS += tests/unit/coll_number
tests_unit_coll_number_SOURCES = tests/unit/coll_number.c tests/unit/check.h
tests_unit_coll_number_LDADD = libmodules.la

check_PROGRAMS += tests/unit/coll_scale
tests_unit_coll_scale_SOURCES = tests/unit/coll_scale.c tests/unit/check.h
tests_unit_coll_scale_LDADD = libmodules.la

check_PROGRAMS += tests/unit/coll_agree
tests_unit_coll_agree_SOURCES = tests/unit/coll_agree.c tests/unit/check.h
tests_unit_coll_agree_LDADD = libmodules.la
tests_unit_coll_agree_LDFLAGS = -Wl,--wrap=fr_ipc_forget_buffer

check_PROGRAMS += tests/unit/job_hydra
tests_unit_job_hydra_SOURCES = tests/unit/job_hydra.c tests/unit/check.h
tests_unit_job_hydra_LDADD = libmodules.la

check_PROGRAMS += tests/unit/job_tally
tests_unit_job_tally_SOURCES = tests/unit/job_tally.c tests/unit/check.h
tests_unit_job_tally_LDADD = libmodules.la

check_PROGRAMS += tests/unit/job_scale
tests_unit_job_scale_SOURCES = tests/unit/job_scale.c tests/unit/check.h
tests_unit_job_scale_LDADD = libmodules.la

check_PROGRAMS += tests/unit/coll_slab
tests_unit_coll_slab_SOURCES = tests/unit/coll_slab.c $(unit_peer_sources)
tests_unit_coll_slab_LDADD = libmodules.la

check_PROGRAMS += tests/unit/coll_task
tests_unit_coll_task_SOURCES = tests/unit/coll_task.c $(unit_peer_sources)
tests_unit_coll_task_LDADD = libmodules.la
tests_unit_coll_task_LDFLAGS = -Wl,--wrap=fr_coll_team_message_tell,--wrap=fr_coll_team_message_was_told

check_PROGRAMS += tests/unit/job_secret
tests_unit_job_secret_SOURCES = tests/unit/job_secret.c tests/unit/check.h
tests_unit_job_secret_LDADD = libmodules.la

check_PROGRAMS += tests/unit/job_host
tests_unit_job_host_SOURCES = tests/unit/job_host.c tests/unit/check.h \
    tests/unit/job_job.h tests/unit/processes.h
tests_unit_job_host_LDADD = libmodules.la

# With a world of their own, which stands in for the objects of module job in the library.
unit_rndv_headers = tests/unit/check.h tests/unit/job_job.h tests/unit/processes.h \
    tests/unit/rndv_host.h tests/unit/rndv_world.h

check_PROGRAMS += tests/unit/rndv_ledger
tests_unit_rndv_ledger_SOURCES = tests/unit/rndv_ledger.c $(unit_rndv_headers)
tests_unit_rndv_ledger_LDADD = libmodules.la

check_PROGRAMS += tests/unit/rndv_threads
tests_unit_rndv_threads_SOURCES = tests/unit/rndv_threads.c $(unit_rndv_headers)
tests_unit_rndv_threads_LDADD = libmodules.la

check_PROGRAMS += tests/unit/rndv_replica
tests_unit_rndv_replica_SOURCES = tests/unit/rndv_replica.c $(unit_rndv_headers)
tests_unit_rndv_replica_LDADD = libmodules.la
tests_unit_rndv_replica_LDFLAGS = -Wl,--wrap=calloc

check_PROGRAMS += tests/unit/rndv_scheme
tests_unit_rndv_scheme_SOURCES = tests/unit/rndv_scheme.c $(unit_rndv_headers)
tests_unit_rndv_scheme_LDADD = libmodules.la

check_PROGRAMS += tests/unit/rndv_send_stage
tests_unit_rndv_send_stage_SOURCES = tests/unit/rndv_send_stage.c $(unit_workspace_sources)
tests_unit_rndv_send_stage_LDADD = libmodules.la

check_PROGRAMS += tests/unit/rndv_traffic
tests_unit_rndv_traffic_SOURCES = tests/unit/rndv_traffic.c $(unit_rndv_headers) \
    tests/unit/driver.h tests/unit/ipc_pair.h tests/unit/inside/memory_usage.c \
    tests/unit/inside/memory_usage.h
tests_unit_rndv_traffic_LDADD = libmodules.la

# With an MPI of its own, hence without the modules.
check_PROGRAMS += tests/unit/request_posted
tests_unit_request_posted_SOURCES = tests/unit/request_posted.c tests/unit/check.h \
    src/request/posted.c src/request/posted_rts.c src/abi/rows.c
tests_unit_request_posted_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/request_deliver
tests_unit_request_deliver_SOURCES = tests/unit/request_deliver.c tests/unit/check.h \
    src/request/deliver.c src/abi/rows.c
tests_unit_request_deliver_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/request_hidden_sends
tests_unit_request_hidden_sends_SOURCES = tests/unit/request_hidden_sends.c tests/unit/check.h \
    src/request/hidden_sends.c src/core/wait.c src/abi/rows.c
tests_unit_request_hidden_sends_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/request_complete
tests_unit_request_complete_SOURCES = tests/unit/request_complete.c tests/unit/check.h \
    src/request/complete.c src/request/outcome.c src/request/set.c src/abi/rows.c
tests_unit_request_complete_CFLAGS = $(AM_CFLAGS)
tests_unit_request_complete_LDFLAGS = -Wl,--wrap=malloc

check_PROGRAMS += tests/unit/request_table
tests_unit_request_table_SOURCES = tests/unit/request_table.c tests/unit/check.h
tests_unit_request_table_LDADD = libmodules.la
tests_unit_request_table_LDFLAGS = -Wl,--wrap=fr_rndv_incoming_any,--wrap=fr_rndv_incoming_read \
    -Wl,--wrap=fr_rndv_incoming_take,--wrap=fr_rndv_incoming_take_known \
    -Wl,--wrap=fr_abi_call

check_PROGRAMS += tests/unit/request_pending
tests_unit_request_pending_SOURCES = tests/unit/request_pending.c tests/unit/check.h \
    src/request/pending.c src/intercept/win_sync.c src/abi/rows.c
tests_unit_request_pending_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/intercept_probe
tests_unit_intercept_probe_SOURCES = tests/unit/intercept_probe.c tests/unit/check.h src/intercept/probe.c \
    src/abi/rows.c
tests_unit_intercept_probe_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/intercept_host_fastpath
tests_unit_intercept_host_fastpath_SOURCES = tests/unit/intercept_host_fastpath.c tests/unit/check.h src/intercept/host_fastpath.c \
    src/abi/rows.c
tests_unit_intercept_host_fastpath_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += tests/unit/report_counts
tests_unit_report_counts_SOURCES = tests/unit/report_counts.c tests/unit/check.h
tests_unit_report_counts_LDADD = libmodules.la
