/* Input and signals for a run that its client doesn't wait for. */
#include "api/handlers.h"
#include "api/wire.h"
#include "base/mem.h"

#define INPUT_MAX (1u << 20)

static void taken(void *ctx, uint64_t bytes, const struct refusal *no)
{
	struct call *c = ctx;
	struct strbuf out = STRBUF_INIT;

	c->pending = NULL;
	c->leave = NULL;
	if (no->status) {
		call_refusal(c, no);
	} else {
		json_open(&out, '{');
		wire_number(&out, "stdin_bytes", (int64_t)bytes);
		json_close(&out, '}');
		call_answer(c, 200, &out);
	}
	call_unref(c);
}

static void leave(struct call *c)
{
	struct run_input *in = c->pending;

	if (!in)
		return;
	c->pending = NULL;
	run_input_leave(in);
	call_unref(c);
}

static void on_body(struct http_request *rq)
{
	struct call *c = http_data(rq);
	const struct run_input_values *v = c->values;
	const struct strbuf *body = http_body(rq);
	uint64_t offset = http_query(rq, "offset") ? (uint64_t)v->offset : RUN_INPUT_APPEND;

	if (http_body_no_room(rq)) {
		call_refuse(c, 503, "Too many large requests at once");
	} else if (http_body_too_large(rq)) {
		call_refuse(c, 413, "The input is larger than %u bytes: send it in pieces",
			    INPUT_MAX);
	} else if (c->generation &&
		   c->generation != service_generation(c->service, c->session_id)) {
		/* The body may have taken minutes. */
		call_refuse(c, 410, "The session has ended: %s", c->session_id);
	} else {
		c->leave = leave;
		c->pending = service_run_input(c->service, c->session_id, v->run_id, offset,
					       body->buf, body->len, v->eof, taken, call_ref(c));
	}
}

void runs_input(struct call *c)
{
	http_read_body(c->rq, INPUT_MAX, on_body);
}

void runs_signal(struct call *c)
{
	const struct run_input_values *v = c->values;
	struct refusal no = { .status = 0 };

	if (service_run_signal(c->service, c->session_id, v->run_id, (int)v->signal, &no))
		call_no_content(c);
	else
		call_refusal(c, &no);
}
