// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the rails of this process, and who is reached by them. Nothing is opened
// before a message could go that way.
#ifndef FR_RNDV_OWN_RAILS_H
#define FR_RNDV_OWN_RAILS_H

#include "fabrail/rail.h"
#include "rndv/rndv_int.h"

// The device that buffers of this process are on: its NICs are those that are opened.
void fr_rndv_rails_use_device(int device);

// By how many rails a process can read memory of this one: 0 until it has done so, which the first
// question has it try. Opens the rails, which takes tenths of a second.
unsigned fr_rndv_rails_to(int to);

// Whether this process has read from that one.
bool fr_rndv_rails_reach(int from);

// No message goes over rails to this process until it has read from here again, which is tried
// after a while.
void fr_rndv_rails_give_up(int to);

// Counts messages that others may be reading: who needs this process's CPU for that gets it.
void fr_rndv_rails_serve(int change);

// Acts on a control message of rails (progress.c); moves everything on.
void fr_rndv_rails_handle(const struct fr_job_control_message *message);
void fr_rndv_rails_poll(void);

// All processes have received what they ever will: nobody is met any more. Then ends.
void fr_rndv_rails_finish(void);
void fr_rndv_rails_close(void);

// The thread of FABRAIL_PROGRESS. Starting does nothing where there is no need for it. `device` is
// that whose memory libfabric may copy from and to in it, -1 for none. Returns false where there is
// need, and it does not run: then nobody may be told to read from this process.
bool fr_rndv_thread_start(struct fr_rails *rails, int device);
void fr_rndv_thread_serve(int change);
void fr_rndv_thread_stop(void);

#endif
