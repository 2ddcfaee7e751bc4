// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the rails of this process, and which processes they reach. They are opened
// when a message could first go over them.
#ifndef FR_RNDV_OWN_RAILS_H
#define FR_RNDV_OWN_RAILS_H

#include "fabrail/rail.h"
#include "fabrail/rndv/incoming.h"

// Notes the device that buffers of this process are on. The NICs nearest to it are opened.
void fr_rndv_rails_use_device(int device);

// Returns by how many rails a process can read memory of this one. This is 0 until it has read
// some, which the first call has it try. Opens the rails, which takes tenths of a second.
unsigned fr_rndv_rails_to(int to);

// Returns whether this process has read from another one.
bool fr_rndv_rails_reach(int from);

// Sends no message over rails to a process until it has read from here again, which both try after
// a while.
void fr_rndv_rails_give_up(int to);

// Adds `change` to the number of messages that others may be reading. While there are any, the
// progress thread polls rails whose providers want the CPU.
void fr_rndv_rails_serve(int change);

// Acts on a control message of rails.
void fr_rndv_rails_handle(const struct fr_job_control_message *message);

// Moves transfers and connections on.
void fr_rndv_rails_poll(void);

// Ends all connections: all processes have received all they ever will.
void fr_rndv_rails_finish(void);

// Closes the rails.
void fr_rndv_rails_close(void);

// Starts the progress thread of FABRAIL_PROGRESS, if there is need for it. `device` is that whose
// memory libfabric may copy from and to in the thread, -1 for none. Returns false if the thread is
// needed and does not run. Then nobody may be told to read from this process.
bool fr_rndv_thread_start(struct fr_rails *rails, int device);

// Adds `change` to the number of messages for which the thread polls.
void fr_rndv_thread_serve(int change);
void fr_rndv_thread_stop(void);

#endif
