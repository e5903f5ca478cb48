/*
 * kvforge-run: the commands. Each takes the words after its name and returns an exit status.
 * A new command is a function declared here and a row in the table of main.c.
 */
#ifndef KVF_TOOL_H
#define KVF_TOOL_H

enum { TOOL_GOOD = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

int tool_info(int argc, char **argv);   /* info.c: what a bundle holds */
int tool_verify(int argc, char **argv); /* verify.c: every kernel against its reference */
int tool_plan(int argc, char **argv);   /* plan.c: what a memory holds under the pool's policies */
int tool_decode(int argc, char **argv); /* decode.c: whole steps on the pool, served in many ways */
int tool_demo(int argc, char **argv);   /* demo.c: the state cache of many requests, end to end */
int tool_profile(int argc, char **argv); /* profile.c: counters of the executor, and a roofline */
int tool_bench(int argc, char **argv);   /* bench.c: times on a device, beside its own rates */

#endif
