/*
 * What schedule.c, groups.c and barrier.c share: a warp's groups of lanes, put aside and taken up.
 * One thread runs a block and all its warps, so nothing here locks.
 */
#ifndef EXECUTOR_GROUPS_H
#define EXECUTOR_GROUPS_H

#include "report.h"

/* Make the frame the one that the running operations see. */
void warp_load_frame(struct warp *w, struct frame *f);
/* Put a group aside, joined with one at the same place and in the same state. */
void warp_add_group(struct warp *w, struct group g);
/* Join ready groups that have come to the same place. */
void warp_join_ready(struct warp *w);
const struct op *group_op(const struct group *g);
/* No group is ready: let one go on whose lanes are complete. False when there is none. */
bool warp_release_sync(struct warp *w);
/* Who waits where, as text. */
void warp_describe_waiting(const struct warp *w, char *text, size_t bytes);
/* A finding at the place of a waiting group. */
void warp_report_group(struct warp *w, const struct group *g, enum finding_kind kind,
                       const char *details, const char *text);
void warp_report_stuck(struct warp *w);

/* All live lanes of the warp wait at barriers: it arrives, if that is one barrier. */
void barrier_warp_arrive(struct warp *w);
/* A warp has ended: barriers may be complete now. */
void barrier_check_all(struct block *block);

#endif
