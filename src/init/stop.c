/*
 * Ending a run: TERM to its process group, and after the grace (2 s, or what
 * STOP says, none for the output limit) SIGKILL to every process of its POSIX
 * session.  What called setsid has left the run and lives.
 *
 * A process that forks while it is being killed would get away, so the leaf is
 * frozen meanwhile; rounds go on until none is left.  Nothing here waits: each
 * look is one tick of the run's timer, and every death makes the next one come
 * at once.
 */
#include <signal.h>

#include "base/mem.h"
#include "base/time.h"
#include "init/session.h"

/*
 * A process freezes when it is next scheduled: hundreds of forkers on two cores
 * take seconds, and a round among what still forks kills all but the newest.
 * So each round that found them not frozen gives the next one more time.
 */
#define FREEZE_MS 300
#define FREEZE_MS_MAX 5000
#define ROUND_MS 20
#define FIRST_WAIT_MS 2
#define LAST_WAIT_MS 50
#define GIVE_UP_MS \
	30000    /* of killing: an uninterruptible process must not hold the answer for ever */
#define SWEEPS 4 /* without a leaf: forks may race with one walk */

static void on_tick(struct loop_timer *t)
{
	stop_tick(t->ctx);
}

static void tick_at(struct run *r, uint64_t at)
{
	loop_timer_set(r->s->loop, &r->tick_timer, at, on_tick, r);
}

void stop_begin(struct run *r, uint8_t cause, uint32_t grace_ms)
{
	uint64_t now = now_ms();

	if (r->ended)
		return;
	if (r->exited && r->phase == STOP_NONE && cause != INIT_CAUSE_OUTPUT_LIMIT) {
		run_cut(r, cause); /* it ended by itself: what it left behind may live */
		return;
	}
	if (r->phase != STOP_NONE) {
		r->kill_ms = MIN(r->kill_ms, now + grace_ms);
		tick_at(r, now);
		return;
	}
	r->exit.cause = cause;
	r->phase = STOP_TERM;
	r->s->n_stopping++;
	r->kill_ms = now + grace_ms;
	r->wait_ms = FIRST_WAIT_MS;
	r->freeze_wait_ms = FREEZE_MS;
	r->give_up_ms = r->kill_ms + GIVE_UP_MS;
	if (r->start && !r->exited) {
		/* Not executed yet: there is no group, and perhaps a fellow stopped it. */
		(void)kill(r->pid, SIGKILL);
		r->kill_ms = now;
	} else if (grace_ms) {
		(void)kill(-r->pid, SIGTERM);
		(void)kill(-r->pid, SIGCONT); /* a stopped one would never see it */
	}
	tick_at(r, now + (grace_ms ? FIRST_WAIT_MS : 0));
}

static void kill_round(struct run *r)
{
	int sweeps = r->leaf ? 1 : SWEEPS;

	while (sweeps-- > 0 && procs_of(r, procs_kill) > 0)
		;
	r->round_ms = now_ms();
}

static void thaw_and_kill(struct run *r)
{
	kill_round(r);
	if (r->leaf)
		(void)leaf_freeze(r->s, r->leaf, false);
	r->phase = STOP_KILL;
	r->wait_ms = FIRST_WAIT_MS;
}

static void freeze(struct run *r)
{
	if (!r->leaf || !leaf_freeze(r->s, r->leaf, true)) {
		thaw_and_kill(r);
		return;
	}
	r->phase = STOP_FREEZE;
	r->freeze_ms = now_ms() + r->freeze_wait_ms;
	r->wait_ms = 1;
	if (leaf_frozen(r->s, r->leaf))
		thaw_and_kill(r);
}

static void over(struct run *r)
{
	r->phase = STOP_DONE;
	r->s->n_stopping--;
	loop_timer_clear(&r->tick_timer);
	run_check(r);
}

void stop_tick(struct run *r)
{
	uint64_t now = now_ms();
	unsigned left;

	if (r->ended || r->phase == STOP_NONE || r->phase == STOP_DONE)
		return;
	if (r->phase == STOP_FREEZE) {
		if (leaf_frozen(r->s, r->leaf)) {
			thaw_and_kill(r);
		} else if (now >= r->freeze_ms) {
			r->freeze_wait_ms = MIN(2 * r->freeze_wait_ms, (unsigned)FREEZE_MS_MAX);
			thaw_and_kill(r);
		}
		tick_at(r, now + r->wait_ms);
		return;
	}
	left = procs_of(r, NULL);
	if (!left && r->exited) {
		over(r);
		return;
	}
	if (now >= r->give_up_ms) {
		run_abandon(r);
		over(r);
		return;
	}
	if (r->phase == STOP_TERM && now >= r->kill_ms)
		freeze(r);
	else if (r->phase == STOP_KILL && left && now >= r->round_ms + ROUND_MS)
		freeze(r);
	else
		r->wait_ms = MIN(r->wait_ms * 2, LAST_WAIT_MS);
	if (r->phase == STOP_TERM)
		tick_at(r, MIN(now + r->wait_ms, MAX(r->kill_ms, now + 1)));
	else
		tick_at(r, now + r->wait_ms);
}

void stop_hurry(struct session *s)
{
	struct run *r;

	list_foreach (r, &s->live, in_list)
		if (r->phase != STOP_NONE && r->phase != STOP_DONE)
			tick_at(r, now_ms());
}
