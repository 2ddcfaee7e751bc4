# Unit tests: a name each, of the file NAME.c. Those that include driver.h run on the simulated driver.
check_PROGRAMS += tests/unit/abi_caller tests/unit/abi_rows \
    tests/unit/coll_agree tests/unit/coll_host_reduce tests/unit/coll_meet tests/unit/coll_number tests/unit/coll_scale tests/unit/coll_segment \
    tests/unit/coll_slab tests/unit/coll_task \
    tests/unit/core_calls tests/unit/core_hash tests/unit/core_log tests/unit/core_settings tests/unit/core_site tests/unit/core_wait \
    tests/unit/device_classify tests/unit/device_clique tests/unit/device_context tests/unit/device_copy \
    tests/unit/device_aperture tests/unit/device_few \
    tests/unit/device_memory tests/unit/device_mover tests/unit/device_pack tests/unit/device_present tests/unit/device_push \
    tests/unit/device_query tests/unit/device_reduce tests/unit/device_row tests/unit/device_standby \
    tests/unit/intercept_guard tests/unit/intercept_host_fastpath tests/unit/intercept_probe \
    tests/unit/intercept_serve_within \
    tests/unit/ipc_cache tests/unit/ipc_channel tests/unit/ipc_failures tests/unit/ipc_importers \
    tests/unit/ipc_share tests/unit/ipc_tuned \
    tests/unit/job_host tests/unit/job_hydra tests/unit/job_scale tests/unit/job_secret tests/unit/job_tally \
    tests/unit/policy_choose tests/unit/policy_collective tests/unit/policy_scheme tests/unit/policy_tuning \
    tests/unit/report_counts tests/unit/report_verdict \
    tests/unit/request_schedule tests/unit/request_advance tests/unit/request_attendant tests/unit/request_await tests/unit/request_complete \
    tests/unit/request_deliver tests/unit/request_early tests/unit/request_hidden_sends \
    tests/unit/request_pending tests/unit/request_posted tests/unit/request_table \
    tests/unit/rma_declined tests/unit/rma_region tests/unit/rma_serve tests/unit/rndv_batch tests/unit/rndv_ledger tests/unit/rndv_patience tests/unit/rndv_replica tests/unit/rndv_scheme tests/unit/rndv_send_stage \
    tests/unit/rndv_threads tests/unit/rndv_traffic \
    tests/unit/staging_device tests/unit/staging_device_soak tests/unit/staging_leases tests/unit/staging_pool \
    tests/unit/staging_share tests/unit/staging_soak tests/unit/staging_tables \
    tests/unit/staging_typed tests/unit/staging_view
EXTRA_DIST += tests/unit/check.h tests/unit/driver.h tests/unit/failing.h tests/unit/ipc_pair.h tests/unit/processes.h tests/unit/job_job.h \
    tests/unit/rndv_host.h tests/unit/rndv_world.h tests/unit/rndv_two_ranks.h tests/unit/logged.h tests/unit/bytes_layout.h tests/unit/apart.h \
    tests/unit/rail_standin.h tests/unit/inside/memory_usage.h tests/unit/inside/workspace_usage.h \
    tests/unit/inside/half_sent.h

# Those that start themselves again for each of their cases (processes.h), which emulators and valgrind do not follow.
fr_unit_processes = $(patsubst %,tests/unit/%,coll_host_reduce coll_segment coll_slab coll_task ipc_cache ipc_channel \
    ipc_failures ipc_importers ipc_share job_host rail_providers rndv_batch rndv_ledger rndv_replica rndv_scheme \
    rndv_threads rndv_traffic staging_share)

# Those of one thread, in which ThreadSanitizer has nothing to see: they make no thread, nor does the library in them.
# One that does fails (check.h).
fr_unit_single = $(patsubst %,tests/unit/%,abi_caller abi_rows coll_agree coll_host_reduce coll_meet coll_number coll_scale coll_segment coll_slab \
    core_hash core_settings core_site core_wait device_copy device_few device_mover device_pack \
    device_reduce device_row device_standby intercept_guard intercept_host_fastpath intercept_probe \
    intercept_serve_within ipc_channel ipc_failures ipc_share \
    ipc_tuned job_scale job_secret job_tally policy_choose policy_collective policy_scheme policy_tuning \
    report_verdict request_schedule request_advance request_await request_complete request_deliver \
    request_early request_hidden_sends rma_declined rma_region rma_serve rndv_batch rndv_ledger rndv_patience rndv_replica rndv_scheme \
    rndv_send_stage staging_device staging_leases staging_pool staging_share staging_typed staging_view \
    rail_wire rail_sched rail_choose rail_faults rail_flush rail_cache rndv_rail_connect rndv_rail_put_send)
$(fr_unit_single): private LDFLAGS += -Wl,--wrap=pthread_create

# With a function of the modules of their own.
tests_unit_coll_agree_LDFLAGS = -Wl,--wrap=fr_ipc_forget_buffer
tests_unit_coll_meet_LDFLAGS = -Wl,--wrap=fr_abi_call,--wrap=malloc
tests_unit_coll_task_LDFLAGS = -Wl,--wrap=fr_coll_team_message_notify,--wrap=fr_coll_team_message_has_notice
tests_unit_device_present_LDFLAGS = -Wl,--wrap=fr_core_lookups,--wrap=fr_core_dlsym
tests_unit_staging_typed_LDFLAGS = -Wl,--wrap=fr_core_log_write,--wrap=mmap
tests_unit_rma_declined_LDFLAGS = -Wl,--wrap=fr_rma_message_send,--wrap=fr_rma_wait_step \
    -Wl,--wrap=fr_staging_borrow,--wrap=fr_rma_copy_packed,--wrap=fr_rndv_progress
tests_unit_rma_serve_LDFLAGS = -Wl,--wrap=calloc,--wrap=fr_abi_call \
    -Wl,--wrap=fr_rma_words_update_try,--wrap=fr_rma_words_update_end,--wrap=fr_rma_words_draw \
    -Wl,--wrap=fr_rma_words_look,--wrap=fr_rma_words_give_up \
    -Wl,--wrap=fr_rma_transfer_receive,--wrap=fr_staging_has_room
tests_unit_rndv_replica_LDFLAGS = -Wl,--wrap=calloc
tests_unit_rndv_send_stage_LDFLAGS = -Wl,--wrap=fr_abi_call
tests_unit_staging_leases_LDFLAGS = -Wl,--wrap=fr_core_log_write
tests_unit_rma_region_LDFLAGS = -Wl,--wrap=fr_ipc_unpin
tests_unit_rndv_batch_LDFLAGS = -Wl,--wrap=fr_device_aperture_may_read
tests_unit_rndv_scheme_LDFLAGS = -Wl,--wrap=fr_job_control_is_alive
tests_unit_request_table_LDFLAGS = -Wl,--wrap=fr_rndv_incoming_any,--wrap=fr_rndv_incoming_read \
    -Wl,--wrap=fr_rndv_incoming_take,--wrap=fr_rndv_incoming_take_known \
    -Wl,--wrap=fr_abi_call,--wrap=malloc

# With what the handlers of module intercept need.
tests_unit_request_table_CPPFLAGS = $(AM_CPPFLAGS)
tests_unit_request_table_SOURCES = tests/unit/request_table.c src/abi/stubs.S src/intercept/window_entry.S

# With a file of a module that answers questions of tests.
tests_unit_job_host_SOURCES = tests/unit/job_host.c tests/unit/inside/half_sent.c
unit_workspace_usage = tests/unit/inside/workspace_usage.c
unit_memory_usage = tests/unit/inside/memory_usage.c tests/unit/inside/export_usage.c
tests_unit_staging_leases_SOURCES = tests/unit/staging_leases.c $(unit_workspace_usage)
tests_unit_staging_soak_SOURCES = tests/unit/staging_soak.c $(unit_workspace_usage)
tests_unit_staging_device_SOURCES = tests/unit/staging_device.c $(unit_workspace_usage)
tests_unit_staging_tables_SOURCES = tests/unit/staging_tables.c $(unit_workspace_usage)
tests_unit_rndv_send_stage_SOURCES = tests/unit/rndv_send_stage.c $(unit_workspace_usage)
tests_unit_staging_share_SOURCES = tests/unit/staging_share.c $(unit_memory_usage)
tests_unit_ipc_share_SOURCES = tests/unit/ipc_share.c $(unit_memory_usage)
tests_unit_ipc_cache_SOURCES = tests/unit/ipc_cache.c $(unit_memory_usage)
tests_unit_ipc_importers_SOURCES = tests/unit/ipc_importers.c $(unit_memory_usage)
tests_unit_ipc_failures_SOURCES = tests/unit/ipc_failures.c $(unit_memory_usage)
tests_unit_coll_host_reduce_SOURCES = tests/unit/coll_host_reduce.c $(unit_memory_usage)
tests_unit_coll_slab_SOURCES = tests/unit/coll_slab.c $(unit_memory_usage)
tests_unit_coll_task_SOURCES = tests/unit/coll_task.c $(unit_memory_usage)
tests_unit_rndv_traffic_SOURCES = tests/unit/rndv_traffic.c $(unit_memory_usage)
tests_unit_rndv_batch_SOURCES = tests/unit/rndv_batch.c $(unit_memory_usage)

# With an MPI of their own, hence with objects of their own of some files, and without the modules.
tests_unit_request_posted_SOURCES = tests/unit/request_posted.c src/request/posted.c \
    src/request/posted_rts.c src/core/wait.c src/abi/rows.c
tests_unit_request_posted_CFLAGS = $(AM_CFLAGS)
tests_unit_request_posted_LDADD =
tests_unit_request_deliver_SOURCES = tests/unit/request_deliver.c src/request/deliver.c src/abi/rows.c
tests_unit_request_deliver_CFLAGS = $(AM_CFLAGS)
tests_unit_request_deliver_LDADD =
tests_unit_request_early_SOURCES = tests/unit/request_early.c src/request/pending_progress.c \
    src/core/wait.c src/abi/rows.c
tests_unit_request_early_CFLAGS = $(AM_CFLAGS)
tests_unit_request_early_LDADD =
tests_unit_request_hidden_sends_SOURCES = tests/unit/request_hidden_sends.c \
    src/request/hidden_sends.c src/core/wait.c src/abi/rows.c
tests_unit_request_hidden_sends_CFLAGS = $(AM_CFLAGS)
tests_unit_request_hidden_sends_LDADD =
tests_unit_request_attendant_SOURCES = tests/unit/request_attendant.c src/request/attendant.c \
    src/core/thread.c src/core/wait.c src/core/log.c src/core/status.c src/abi/rows.c
tests_unit_request_attendant_CFLAGS = $(AM_CFLAGS)
tests_unit_request_attendant_LDADD =
tests_unit_request_schedule_SOURCES = tests/unit/request_schedule.c src/request/schedule.c \
    src/core/wait.c src/core/log.c src/core/status.c src/abi/rows.c
tests_unit_request_schedule_CFLAGS = $(AM_CFLAGS)
tests_unit_request_schedule_LDADD =
tests_unit_request_advance_SOURCES = tests/unit/request_advance.c src/request/advance.c src/abi/rows.c
tests_unit_request_advance_CFLAGS = $(AM_CFLAGS)
tests_unit_request_advance_LDADD =
tests_unit_intercept_serve_within_SOURCES = tests/unit/intercept_serve_within.c src/intercept/serve_within.c
tests_unit_intercept_serve_within_CFLAGS = $(AM_CFLAGS)
tests_unit_intercept_serve_within_LDADD =
tests_unit_request_await_SOURCES = tests/unit/request_await.c src/request/await.c src/core/wait.c \
    src/abi/rows.c
tests_unit_request_await_CFLAGS = $(AM_CFLAGS)
tests_unit_request_await_LDADD =
tests_unit_request_complete_SOURCES = tests/unit/request_complete.c \
    src/request/complete.c src/request/outcome.c src/request/set.c src/abi/rows.c
tests_unit_request_complete_CFLAGS = $(AM_CFLAGS)
tests_unit_request_complete_LDFLAGS = -Wl,--wrap=malloc
tests_unit_request_complete_LDADD =
tests_unit_request_pending_SOURCES = tests/unit/request_pending.c src/request/pending.c \
    src/intercept/win_sync.c src/abi/rows.c
tests_unit_request_pending_CFLAGS = $(AM_CFLAGS)
tests_unit_request_pending_LDADD =
tests_unit_intercept_guard_SOURCES = tests/unit/intercept_guard.c src/intercept/guard_requests.c \
    src/core/wait.c src/core/log.c src/core/status.c src/abi/rows.c
tests_unit_intercept_guard_CFLAGS = $(AM_CFLAGS)
tests_unit_intercept_guard_LDADD =
tests_unit_intercept_probe_SOURCES = tests/unit/intercept_probe.c src/intercept/probe.c src/abi/rows.c
tests_unit_intercept_probe_CFLAGS = $(AM_CFLAGS)
tests_unit_intercept_probe_LDADD =
tests_unit_intercept_host_fastpath_SOURCES = tests/unit/intercept_host_fastpath.c \
    src/intercept/host_fastpath.c src/abi/rows.c
tests_unit_intercept_host_fastpath_CFLAGS = $(AM_CFLAGS)
tests_unit_intercept_host_fastpath_LDADD =
