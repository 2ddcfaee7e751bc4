// SPDX-License-Identifier: BSD-3-Clause
// Ranks that quit a team: after a call that MPI has failed they agree with the others on nothing
// more. A rank quits once its operations under way, which need its posts, have ended.
#include "config.h"

#include "coll/team_quit.h"

#include "fabrail/coll/queue.h"

bool fr_coll_team_was_quit(struct fr_coll_team *team)
{
    if (team->quit || team->never_quits)
        return team->quit;
    const struct fr_coll_meeting quit = fr_coll_team_meeting(team, FR_COLL_MEET_QUIT, 0);
    team->quit = team->discovery ? fr_coll_discovery_was_quit(team->discovery)
                 : fr_coll_team_message_has_notice(&quit) ? FR_COLL_QUIT
                                                          : FR_COLL_STAYS;
    return team->quit;
}

// Says that this rank needs no posts any more, once a rank has quit and no operation is under way.
// Those that are begun later post nothing.
static void leave_posts(struct fr_coll_team *team)
{
    if (team->quit && team->segment)
        fr_coll_segment_done(team->segment, UINT64_MAX);
}

enum { NOTICE_END = 1, NOTICE_QUIT = 2 };

void fr_coll_team_notify(struct fr_coll_team *team, uint64_t call)
{
    const bool quits = call == FR_COLL_MEET_QUIT;
    if (fr_job_control_stays_here) {
        atomic_fetch_or(&team->notices, quits ? NOTICE_QUIT : NOTICE_END);
        return;
    }
    struct fr_coll_meeting last =
        fr_coll_team_meeting(team, call, quits ? team->quits_at_meeting : 0);
    last.persistent = quits ? team->quits_at_persistent : 0;
    fr_coll_team_message_notify(&last);
}

void fr_coll_team_send_notices(struct fr_coll_team *team)
{
    if (FR_LIKELY(atomic_load_explicit(&team->notices, memory_order_relaxed) == 0))
        return;
    const unsigned notices = atomic_exchange(&team->notices, 0);
    if (notices & NOTICE_END)
        fr_coll_team_notify(team, FR_COLL_MEET_END);
    if (notices & NOTICE_QUIT)
        fr_coll_team_notify(team, FR_COLL_MEET_QUIT);
}

static void notify_quit(struct fr_coll_team *team)
{
    team->quits = false;
    if (team->discovery) {
        fr_coll_discovery_quit(team->discovery, team->tried ? FR_COLL_QUIT : FR_COLL_QUIT_UNTRIED);
        team->quit = fr_coll_discovery_was_quit(team->discovery);
    } else {
        fr_coll_team_notify(team, FR_COLL_MEET_QUIT);
        team->quit = FR_COLL_QUIT;
    }
}

void fr_coll_team_end_turn(struct fr_coll_team *team)
{
    team->ended++;
    if (FR_UNLIKELY(team->quits) && team->ended >= team->quits_after)
        notify_quit(team);
    leave_posts(team);
}

bool fr_coll_team_look_for_quit(struct fr_coll_team *team)
{
    fr_coll_queue_hold(team);
    bool quit = fr_coll_team_was_quit(team);
    if (team->ended == team->begun)
        leave_posts(team);
    fr_coll_queue_release(team);
    return quit;
}

void fr_coll_team_quit(struct fr_coll_team *team, uint64_t last_meeting)
{
    fr_coll_queue_hold(team);
    team->quits = true;
    team->quits_at_meeting = last_meeting;
    team->quits_at_persistent = team->clones;
    team->quits_after = team->begun;
    if (team->ended == team->begun) {
        notify_quit(team);
        leave_posts(team);
    }
    fr_coll_queue_release(team);
}
