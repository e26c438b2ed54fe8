/*
 * Input for runs that were started with it.  A client names the offset of what
 * it sends, so that it may send it again when it got no answer: what the run has
 * already is skipped.  An answer means that init holds the bytes, which outlive
 * this process there; until then one piece after the other is on its way, as
 * far as the run takes them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/run_impl.h"

#define PIECE 32768u
#define WINDOW (256u * 1024) /* that were sent and not read */

struct run_input {
	struct list link; /* run.inputs */
	struct run *run;  /* NULL: only an answer is due */
	struct service *service;
	uint64_t offset;
	const uint8_t *data;
	size_t n;
	bool end, begun;
	struct loop_later later;
	struct refusal no;
	run_input_done done;
	void *ctx;
};

static void answer(struct run_input *in, uint64_t bytes)
{
	loop_later_cancel(in->service->loop, &in->later);
	list_remove(&in->link);
	in->done(in->ctx, bytes, &in->no);
	free(in);
}

static void answer_later(struct loop_later *l)
{
	struct run_input *in = l->ctx;

	answer(in, 0);
}

/* Where does it go on?  False: it was refused. */
static bool begin(struct run *r, struct run_input *in)
{
	uint64_t skip;

	if (in->offset == RUN_INPUT_APPEND)
		in->offset = r->fed;
	if (in->offset > r->fed) {
		refuse(&in->no, 409, "offset",
		       "Run %s has %llu bytes of input; what is between them and offset %llu is missing",
		       r->id, (unsigned long long)r->fed, (unsigned long long)in->offset);
		return false;
	}
	skip = MIN(r->fed - in->offset, (uint64_t)in->n);
	in->data += skip;
	in->n -= (size_t)skip;
	if (r->fed_end && in->n) {
		refuse(&in->no, 409, "ended", "The input of run %s has ended after %llu bytes",
		       r->id, (unsigned long long)r->fed);
		return false;
	}
	in->begun = true;
	return true;
}

/* Send what may be sent; true when init has all of it. */
static bool feed(struct run *r, struct run_input *in, const struct box_run_state *st)
{
	const struct provider_ops *ops = r->set->service->ops;

	while (in->n && r->fed - st->taken < WINDOW) {
		size_t n = MIN(in->n, (size_t)PIECE);

		ops->input(r->box_run, in->data, n);
		in->data += n;
		in->n -= n;
		r->fed += n;
	}
	if (in->n)
		return false;
	if (in->end && !r->fed_end) {
		ops->input(r->box_run, NULL, 0);
		r->fed_end = true;
	}
	return st->held >= r->fed && (!in->end || st->input_ended);
}

void run_inputs_go_on(struct run *r, const struct box_run_state *st)
{
	while (!list_empty(&r->inputs)) {
		struct run_input *in = list_entry(r->inputs.next, struct run_input, link);

		if (!in->begun && !begin(r, in)) {
			answer(in, r->fed);
			continue;
		}
		if (!feed(r, in, st))
			return;
		answer(in, r->fed);
	}
}

void run_inputs_end(struct run *r)
{
	while (!list_empty(&r->inputs)) {
		struct run_input *in = list_entry(r->inputs.next, struct run_input, link);

		refuse(&in->no, 409, "exited", "Run %s has ended", r->id);
		answer(in, r->fed);
	}
}

static void go_on_later(struct loop_later *l)
{
	struct run_input *in = l->ctx;
	struct run *r = in->run;
	struct box_run_state st;

	if (!r->box_run)
		return; /* it waits with the run */
	r->set->service->ops->state(r->box_run, &st);
	run_inputs_go_on(r, &st);
}

static struct run *find_live(struct service *svc, const char *session_id, const char *run_id,
			     struct refusal *no)
{
	struct session *s = find_session(svc, session_id);
	struct run *r = s ? map_find(&s->runs->runs, run_id) : NULL;

	if (!s)
		refuse(no, 404, NULL, "No such session: %s", session_id);
	else if (!r)
		refuse(no, 404, NULL, "No such run: %s", run_id);
	else if (r->state == RUN_FINISHED)
		refuse(no, 409, "exited", "Run %s has ended", run_id);
	return no->status ? NULL : r;
}

struct run_input *service_run_input(struct service *svc, const char *session_id, const char *run_id,
				    uint64_t offset, const void *data, size_t n, bool end,
				    run_input_done done, void *ctx)
{
	struct run_input *in = xnew(struct run_input);
	struct run *r;

	*in = (struct run_input){ .service = svc,
				  .offset = offset,
				  .data = data,
				  .n = n,
				  .end = end,
				  .done = done,
				  .ctx = ctx };
	list_init(&in->link);
	r = find_live(svc, session_id, run_id, &in->no);
	if (r && !r->input)
		refuse(&in->no, 409, "input", "Run %s was started without input", run_id);
	if (!r || in->no.status) {
		loop_later_add(svc->loop, &in->later, answer_later, in);
		return in;
	}
	session_touch(r->set->session);
	in->run = r;
	list_append(&r->inputs, &in->link);
	loop_later_add(svc->loop, &in->later, go_on_later, in);
	return in;
}

void run_input_leave(struct run_input *in)
{
	loop_later_cancel(in->service->loop, &in->later);
	list_remove(&in->link);
	free(in);
}

bool service_run_signal(struct service *svc, const char *session_id, const char *run_id, int signo,
			struct refusal *no)
{
	struct run *r = find_live(svc, session_id, run_id, no);

	if (!r)
		return false;
	if (!r->box_run) {
		refuse(no, 409, "queued", "Run %s has not begun", run_id);
		return false;
	}
	session_touch(r->set->session);
	svc->ops->signal(r->box_run, signo);
	return true;
}
