// SPDX-License-Identifier: BSD-3-Clause
// Requests of an origin under way, for the files that cut accesses: src/rma/remote_access.c, and
// src/rma/large.c for what goes by rendezvous.
#ifndef FR_RMA_REMOTE_REQUEST_H
#define FR_RMA_REMOTE_REQUEST_H

#include "rma/rma_int.h"
#include "rma/window_message.h"

struct fr_rma_large;

// Enters a request whose answer brings so many bytes to memory in one piece, or none where `to` is
// 0. Returns NULL when out of memory. It is sent with its message, or freed where that fails.
struct fr_rma_request *fr_rma_remote_enter_access(struct fr_rma_window *window, int rank,
                                                  uintptr_t to, size_t bytes,
                                                  const struct fr_device_range *range);

// Enters the request of a part of a large access, as fr_rma_remote_enter_access does.
struct fr_rma_request *fr_rma_remote_enter_large(struct fr_rma_window *window, int rank,
                                                 struct fr_rma_large *large);

// Sends an entered request with its message, and owns both. Both are freed where it fails.
FR_MUST_CHECK enum fr_status fr_rma_remote_send(struct fr_rma_window *window,
                                                struct fr_rma_request *request,
                                                struct fr_rma_message *message,
                                                enum fr_rma_kind kind);

// Ends the request of a large access that has been answered, and frees it.
void fr_rma_remote_complete(struct fr_rma_window *window, struct fr_rma_request *request,
                            enum fr_status status);

// Keeps the request of a large access that its target has declined. It is done anew when the origin
// waits.
void fr_rma_remote_decline(struct fr_rma_window *window, struct fr_rma_request *request);

// Waits until a further request may be sent to a rank.
FR_MUST_CHECK enum fr_status fr_rma_remote_await_turn(struct fr_rma_window *window, int rank);

// Waits until all requests to a rank have been answered. Does nothing anew that was declined.
FR_MUST_CHECK enum fr_status fr_rma_remote_await_answers(struct fr_rma_window *window, int rank);

// Copies between packed memory of the host and memory in one piece, and waits.
FR_MUST_CHECK enum fr_status fr_rma_copy_piece(const struct fr_device_range *range,
                                               uintptr_t address, void *packed, size_t bytes,
                                               bool to_packed);

#endif
