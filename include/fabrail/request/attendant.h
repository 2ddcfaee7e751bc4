// SPDX-License-Identifier: BSD-3-Clause
// The attendant: a thread of Fabrail's under MPI_THREAD_MULTIPLE that gives and receives what
// others wait for.
#ifndef FR_FABRAIL_REQUEST_ATTENDANT_H
#define FR_FABRAIL_REQUEST_ATTENDANT_H

#include "fabrail/core.h"

// Allows the attendant. It calls `look` again and again, which calls fr_request_attend and returns
// whether others were served.
void fr_request_attendant_allow(bool (*look)(void));

// Has the attendant look, allowed or not, as long as a window lives whose ranks send each other
// messages. Returns false if no thread can be started. fr_request_attendant_let_go is called once
// for each call of it, when the window goes.
FR_MUST_CHECK bool fr_request_attendant_keep(bool (*look)(void));
void fr_request_attendant_let_go(void);

// Returns whether the attendant looks after others, so that sends may wait in their buffers
// whatever the program's threads do. Starts it if it is allowed and this process uses a device.
// Costs a load or two otherwise.
bool fr_request_is_attended(void);

// Has the attendant look, since others may have begun to depend on this process. Whatever they
// depend on is counted before. Returns whether there is an attendant.
bool fr_request_attendant_wake(void);

// Gives and receives what others wait for. Called by the attendant alone.
void fr_request_attend(void);

// Ends the attendant, and allows no other. Called when no other thread is in MPI.
void fr_request_attendant_stop(void);

#endif
